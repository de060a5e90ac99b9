#include <stdio.h>
#define BOTH case 7: case 8:
#define PICK(c) ((c) ? 10 : 20)
static int calls = 0;
static int next(void) { return ++calls; }
enum { LARGE = sizeof(long) > 4 ? 8 : 4 };
int main(int argc, char **argv) {
    int total = 0, bounds[sizeof(int) > 2 ? 4 : 2] = {0};
    static const int chosen = LARGE > 4 ? 1 : 2;
    for (int i = 0; i < 10; i++) {
        switch (i) {
        case 0:
        case 1: total += 1; /* fallthrough */
        case 2 ... 3: { int inner = i; total += inner; } break;
        case 4: /* : */ ; break;
        BOTH total += 7; break;
        case LARGE > 4 ? 9 : 6: total += 100; break;
        default: total += next() > 1 ? 2 : i > 5 ? 3 : 4;
        }
        total += (i % 2 ? i > 4 : i < 4) ? 1 : PICK(i > 2);
        if (i > 3 ? i < 8 : argc > 5) total += next() ?: 5;
        while (argc > 99 ? 1 : 0) break;
    }
    switch (total) case 3: total = 5;
    switch (argc) { case 1: case 2: total++; break; case 3:; }
    printf("%d %d %d %d\\n", total, calls, chosen, (int)sizeof bounds);
    return 0;
}
