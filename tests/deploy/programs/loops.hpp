#pragma once
#include <array>
template <typename T> T count_down(T n) {
    T steps = 0;
    while (n > 0) { n -= 1; steps += n > 2 ? 2 : 1; }
    return steps;
}
__attribute__((noinline)) inline int shared(int n) {
    int found = 0;
    for (int i = 0; i < n; i++) if (i % 2) found++;
    return found;
}
struct Box {
    std::array<int, (sizeof(int) > 2 ? 4 : 2)> cells{};
    int fill(int n) { for (auto &cell : cells) { cell = n; } return cells[0]; }
};
constexpr int folded(int x) { return x > 3 ? 1 : 2; }
namespace deep { static inline int twice(int x) { switch (x) { case 1: return 2; default: return 2 * x; } } }
