#include <cstdio>
#include <memory>
#include <string>
#include <vector>
template <typename T> T sum(const std::vector<T> &values) {
    T total{};
    for (const auto &value : values) { total += value; }
    if constexpr (sizeof(T) > 4) { total += 1; }
    return total;
}
constexpr int folded(int x) { int y = x; while (y > 10) { y -= 10; } return y; }
static_assert(folded(25) == 5, "still a constant");
struct Flag { bool on; explicit operator bool() const { return on; } };
class Solver {
  public:
    explicit Solver(int n) : n_(n) { scale_ = n * 2; }
    int run() {
        int steps = 0;
        if (Flag f{n_ > 2}; f) { steps = 1; }
        Flag plain{true};
        if (plain) steps += n_;
        return steps + scale_;
    }
  private:
    int n_, scale_;
};
int main() {
    std::vector<double> v{1, 2, 3};
    auto twice = [](int x) { int y = x * 2; return y; };
    if (auto p = std::make_unique<int>(4)) { v.push_back(*p); }
    int (*f)(int) = folded;
    std::printf("%g %d %d %d\n", sum(v), Solver(3).run(), twice(4), f(31));
}
