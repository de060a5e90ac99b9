/* The TCP connections of a user to other machines, as the kernel shows them to anybody: sock_diag(7). */
#include "connections.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ESTABLISHED (1u << 1)
#define MAX_BYTES (2u << 20) /* read of the answer */
#define WAIT_MICROSECONDS 200000

/* Of struct tcp_info, whose end differs between kernels. */
#define ACKED_AT 120u   /* tcpi_bytes_acked */
#define BUSY_AT 168u    /* tcpi_busy_time, microseconds */
#define LIMITED_AT 176u /* tcpi_rwnd_limited, likewise */

static uint64_t number_at(const char *data) {
    uint64_t number;
    memcpy(&number, data, sizeof number);
    return number;
}

static int is_loopback(const uint8_t peer[16], int family) {
    static const uint8_t six[16] = {[15] = 1}, mapped[12] = {[10] = 0xff, [11] = 0xff};
    return family == AF_INET ? peer[0] == 127
                             : !memcmp(peer, six, 16) || (!memcmp(peer, mapped, 12) && peer[12] == 127);
}

/* Whether a message is about a connection of the user whose times are counted. */
static int is_counted(const char *data, size_t size, uint32_t user, int keeps_loopback, struct connection *found) {
    struct inet_diag_msg about;
    if (size < sizeof about)
        return 0;
    memcpy(&about, data, sizeof about);
    memset(found, 0, sizeof *found);
    memcpy(found->peer, about.id.idiag_dst, about.idiag_family == AF_INET ? 4 : 16);
    memcpy(&found->cookie, about.id.idiag_cookie, sizeof found->cookie);
    if (about.idiag_uid != user || (!keeps_loopback && is_loopback(found->peer, about.idiag_family)))
        return 0;
    for (size_t at = sizeof about; at + sizeof(struct nlattr) <= size;) {
        struct nlattr head;
        memcpy(&head, data + at, sizeof head);
        const char *info = data + at + sizeof head;
        size_t end = at + head.nla_len < size ? at + head.nla_len : size;
        if (head.nla_type == INET_DIAG_INFO && end >= at + sizeof head + LIMITED_AT + 8) {
            uint64_t busy = number_at(info + BUSY_AT), limited = number_at(info + LIMITED_AT);
            found->flight_seconds = busy > limited ? 1e-6 * (double)(busy - limited) : 0.0;
            found->acked_bytes = number_at(info + ACKED_AT);
            return 1;
        }
        at += NLA_ALIGN(head.nla_len > sizeof head ? head.nla_len : sizeof head);
    }
    return 0; /* an older kernel */
}

uint64_t connections_parse(const void *data, uint64_t size, uint32_t user, int keeps_loopback,
                           struct connection *found, uint64_t max, int *is_last) {
    uint64_t count = 0;
    for (uint64_t at = 0; at + sizeof(struct nlmsghdr) <= size && count < max;) {
        struct nlmsghdr head;
        memcpy(&head, (const char *)data + at, sizeof head);
        if (head.nlmsg_len < sizeof head || head.nlmsg_len > size - at) {
            *is_last = 1;
            break;
        }
        *is_last |= head.nlmsg_type == NLMSG_DONE || head.nlmsg_type == NLMSG_ERROR;
        if (head.nlmsg_type == TCPDIAG_GETSOCK)
            count += (uint64_t)is_counted((const char *)data + at + sizeof head, head.nlmsg_len - sizeof head, user,
                                          keeps_loopback, found + count);
        at += NLMSG_ALIGN(head.nlmsg_len);
    }
    return count;
}

/* Of both families by one walk through the kernel's table of all connections, which takes 1 ms: SOCK_DIAG_BY_FAMILY needs
 * one for each. */
static uint64_t ask(uint32_t user, int keeps_loopback, struct connection *found, uint64_t max) {
    static _Thread_local char data[1 << 16];
    struct {
        struct nlmsghdr head;
        struct inet_diag_req request;
    } question = {{sizeof question, TCPDIAG_GETSOCK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0},
                  {.idiag_ext = 1 << (INET_DIAG_INFO - 1), .idiag_states = ESTABLISHED}};
    const struct timeval wait = {0, WAIT_MICROSECONDS};
    uint64_t count = 0;
    int link = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), is_last = 0;
    if (link < 0)
        return 0;
    if (!setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) &&
        send(link, &question, sizeof question, 0) == (ssize_t)sizeof question) {
        for (size_t total = 0; total < MAX_BYTES && !is_last;) {
            ssize_t size = recv(link, data, sizeof data, 0);
            if (size < (ssize_t)sizeof(struct nlmsghdr))
                break;
            total += (size_t)size;
            count += connections_parse(data, (uint64_t)size, user, keeps_loopback, found + count, max - count, &is_last);
        }
    }
    close(link);
    return count;
}

static int by_cookie(const void *a, const void *b) {
    uint64_t left = ((const struct connection *)a)->cookie, right = ((const struct connection *)b)->cookie;
    return (left > right) - (left < right);
}

static int by_peer(const void *a, const void *b) {
    return memcmp(((const struct connection *)a)->peer, ((const struct connection *)b)->peer, 16);
}

uint64_t connections_of(uint32_t user, int keeps_loopback, struct connection *found) {
    uint64_t count = ask(user, keeps_loopback, found, MAX_CONNECTIONS);
    qsort(found, count, sizeof *found, by_cookie);
    return count;
}

double connections_flight(const struct connection *before, uint64_t was, const struct connection *now, uint64_t is,
                          uint64_t least) {
    static struct connection grown[MAX_CONNECTIONS]; /* since then, by peer */
    uint64_t count = 0;
    double best = NAN;
    for (uint64_t a = 0, b = 0; a < was && b < is && count < MAX_CONNECTIONS;) {
        const struct connection *old = before + a, *new = now + b;
        a += old->cookie <= new->cookie, b += new->cookie <= old->cookie;
        if (old->cookie != new->cookie)
            continue;
        grown[count] = *new;
        grown[count].flight_seconds = fmax(new->flight_seconds - old->flight_seconds, 0.0);
        grown[count++].acked_bytes = new->acked_bytes > old->acked_bytes ? new->acked_bytes - old->acked_bytes : 0;
    }
    qsort(grown, count, sizeof *grown, by_peer);
    for (uint64_t at = 0; at < count;) {
        double seconds = 0.0;
        uint64_t bytes = 0;
        const struct connection *first = grown + at;
        for (; at < count && !by_peer(first, grown + at); at++)
            seconds += grown[at].flight_seconds, bytes += grown[at].acked_bytes;
        if (bytes >= least)
            best = fmin(best, 1e6 * seconds / (double)bytes);
    }
    return best;
}
