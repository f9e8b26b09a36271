/* The floor in C: rounds over N sockets and epoll, each done when a majority has answered everything it was
   asked.  The sizes of the answers are known, so they are only counted. */
#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define MOST 64

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Returns 0, or -1: a node was silent for 5 s, is gone, or gave an answer of another size. */
static int round_(int poll, int n, const int *fds, long *owed, const char *data, int size, int answer) {
    int answered = 0;
    for (int i = 0; i < n; i++) {
        owed[i] += answer;
        if (write(fds[i], data, size) != size) return -1;
    }
    while (answered < n / 2 + 1) {
        struct epoll_event events[MOST];
        int ready = epoll_wait(poll, events, MOST, 5000);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return -1;
        for (int k = 0; k < ready; k++) {
            char buffer[4096];
            int i = events[k].data.u32;
            long got = read(fds[i], buffer, sizeof buffer);
            if (got <= 0 || (owed[i] -= got) < 0) return -1;
            answered += owed[i] == 0;
        }
    }
    return 0;
}

/* Runs `count` cycles; the packed acquires (all of one size) stand one behind the other, and so do the releases.
   Writes the seconds until each was acquired, and until it was released. */
int cycles(int n, const int *fds, int count, const char *acquires, int acquire_size, int acquire_answer,
           const char *releases, int release_size, int release_answer, double *acquired, double *released) {
    long owed[MOST] = {0};
    int failed = 0, poll = epoll_create1(0);
    for (int i = 0; i < n; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        epoll_ctl(poll, EPOLL_CTL_ADD, fds[i], &event);
    }
    for (int k = 0; k < count && !failed; k++) {
        double began = now();
        failed |= round_(poll, n, fds, owed, acquires + k * acquire_size, acquire_size, acquire_answer);
        acquired[k] = now() - began;
        failed |= round_(poll, n, fds, owed, releases + k * release_size, release_size, release_answer);
        released[k] = now() - began;
    }
    for (int i = 0; i < n && !failed; i++) { /* what the minority still owes */
        char buffer[4096];
        while (owed[i] > 0 && !failed) {
            long got = read(fds[i], buffer, sizeof buffer);
            failed |= got <= 0;
            owed[i] -= got;
        }
    }
    close(poll);
    return failed ? -1 : 0;
}
