#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "scale.h"
#define TWICE(x) for (int t = 0; t < 2; t++) { x; }
#define ONLY_IF(c) if (c)
struct grid { int width; double *cells; };

static int noisy_calls = 0;
static int noisy(int x) { noisy_calls++; return x; }

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 5, i = 0, pairs[3] = {1, 2, 3};
    struct grid g;
    g.width = n * 2;
    long total = 0;
    unsigned long bits = 1, *pointer = &bits;
    for (int a = 0, b = n; a < b; a++)
        for (int c = 0; c < 3; ++c) total += noisy(c);
    while (noisy(i) < n && i++ < 100) { if (i % 2) continue; total++; }
    do total += 2; while (noisy(--n) > 0);
    for (;;) { if (i-- < 0) break; }
    if (!pointer) return 9; else if (total > 3) total -= 1; else { total = 0; }
    TWICE(total += 1)
    ONLY_IF(total > 1) total++;
    pairs[noisy(1)] = 7;
    switch (n) { case 0: total += 100; break; default: total = 1; }
    if (n == 0) goto done;
    total = -1;
done:
    bits <<= 3;
    { int inner = scale(n + 4); total += inner; }
    int statement = ({ int s = 3; s = s + 1; });
    if (argc > 2) { raise(SIGKILL); }
    printf("%ld %d %d %d %lu %d\n", total, g.width, pairs[1], noisy_calls, bits, statement);
    return 0;
}
