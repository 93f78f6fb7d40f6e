/* Clocks of a process as a file of four int64 tells them (LD_PRELOAD, HOLDLOG_TEST_CLOCKS): nanoseconds by which
   the wall clock is shifted; by which the steady clock is; the time at which it stands (0: it runs); by which the
   clock that runs on in sleep is shifted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static volatile int64_t *told;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("HOLDLOG_TEST_CLOCKS");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *at = mmap(0, 4 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) told = at;
    close(file);
}

static int64_t real(clockid_t clock) {
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static int64_t shown(clockid_t clock) {
    int64_t now = real(clock);
    if (!told) return now;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return now + told[0];
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
        return told[2] ? told[2] : now + told[1];
    case CLOCK_BOOTTIME:
        return now + told[3];
    default:
        return now;
    }
}

static struct timespec as_timespec(int64_t at) {
    return (struct timespec){.tv_sec = at / SECOND, .tv_nsec = at % SECOND};
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    *now = as_timespec(shown(clock));
    return 0;
}

time_t time(time_t *now) {
    time_t at = shown(CLOCK_REALTIME) / SECOND;
    if (now) *now = at;
    return at;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int64_t at = shown(CLOCK_REALTIME);
    now->tv_sec = at / SECOND;
    now->tv_usec = at % SECOND / 1000;
    return 0;
}

/* What sleeps until a time of a clock that is shown to it must sleep until that of the kernel's. */

static struct timespec kernels(clockid_t clock, const struct timespec *until) {
    return as_timespec(until->tv_sec * SECOND + until->tv_nsec + real(clock) - shown(clock));
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until) {
    struct timespec at = kernels(clock, until);
    return NEXT(sem_clockwait)(semaphore, clock, &at);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    struct timespec at = kernels(CLOCK_REALTIME, until);
    return NEXT(sem_timedwait)(semaphore, &at);
}

int pthread_cond_timedwait(
    pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    struct timespec at = kernels(CLOCK_MONOTONIC, until); /* as Python sets its conditions up */
    return NEXT(pthread_cond_timedwait)(condition, mutex, &at);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    struct timespec at = flags & TIMER_ABSTIME ? kernels(clock, until) : *until;
    return syscall(SYS_clock_nanosleep, clock, flags, &at, left) < 0 ? errno : 0;
}
