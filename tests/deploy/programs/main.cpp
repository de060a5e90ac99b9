#include "lib/loops.hpp"
#include <cstdio>
int other(int);
int main() {
    constexpr int n = folded(4) == 1 ? 5 : 6;
    const int sized = sizeof(long) > 4 ? 2 : 3;
    int cells[sized] = {0};
    auto pick = [](int x) { return x > 1 ? x : 0; };
    int filled = Box().fill(3) + pick(2) + cells[0];
    std::printf("%d %d %d %d %d\n", count_down(n), shared(6), filled, deep::twice(1), other(4));
}
