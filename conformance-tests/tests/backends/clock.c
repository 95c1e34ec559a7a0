/* A wall clock that is ahead or behind by the seconds in the file that CLOCK_OFFSET names. Loaded into a server before the C library. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    static volatile long *page;
    if (!page) {
        const char *name = getenv("CLOCK_OFFSET");
        int file = name ? open(name, O_RDONLY) : -1;
        void *mapped = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        static long zero;
        page = mapped == MAP_FAILED ? &zero : mapped;
    }
    return *page;
}

/* By the kernel and not by the C library, which would call back. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int answer = syscall(SYS_clock_gettime, clock, now);
    if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int answer = syscall(SYS_gettimeofday, now, zone);
    if (answer == 0 && now) now->tv_sec += offset();
    return answer;
}

time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
