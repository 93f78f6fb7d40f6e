/* What a kernel may do to a process, and when (LD_PRELOAD; written by faults.py).

   HOLDLOG_TEST_CONTROL: a file of int64 (struct control) that the test and its processes share.
   HOLDLOG_TEST_FOLDER: system calls on files in it are counted and may be struck; the others are not looked at.
   HOLDLOG_TEST_JOURNAL: a file that gets these calls, so that a test can make the disk of a machine that lost its power.
   HOLDLOG_TEST_BOOT_ID: a file that is read instead of the kernel's boot id. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define FILES 4096
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

enum kind { READ = 1, WRITE = 2, SYNC = 4, CUT = 8, NAME = 16, LOCK = 32, RANGE = 64 };
enum entry { WROTE = 1, TRUNCATED, SYNCED, CREATED, UNLINKED, RENAMED, LINKED };

/* wall, steady, asleep: nanoseconds by which clocks are shifted; stands: the time at which the steady clock stands.
   Calls first to last of these kinds, by their number, are struck: action > 0 is an errno, < 0 a signal. */
static volatile struct control {
    int64_t wall, steady, stands, asleep, count, first, last, action, kinds;
} nothing, *control = &nothing;

static char folder[1024];
static int folder_length, journal = -1;
static char *names[FILES];
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

#define RAW(name, ...) syscall(SYS_##name, __VA_ARGS__)

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("HOLDLOG_TEST_CONTROL");
    int file = name ? RAW(openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *at = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (at != MAP_FAILED) control = at;
        RAW(close, file);
    }
    if ((name = getenv("HOLDLOG_TEST_FOLDER"))) {
        strncpy(folder, name, sizeof folder - 1);
        folder_length = strlen(folder);
    }
    if ((name = getenv("HOLDLOG_TEST_JOURNAL"))) {
        int opened = RAW(openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        journal = fcntl(opened, F_DUPFD_CLOEXEC, FILES);
        RAW(close, opened);
    }
}

/* The name of a file in the folder, "." for the folder itself, NULL for all others. */
static const char *ours(const char *path) {
    if (!folder_length || !path || strncmp(path, folder, folder_length)) return NULL;
    if (!path[folder_length]) return ".";
    return path[folder_length] == '/' ? path + folder_length + 1 : NULL;
}

static const char *name_of(int file) { return file >= 0 && file < FILES ? names[file] : NULL; }

/* Count a call; the error with which it fails, or 0. */
static int strike(enum kind kind) {
    if (!(control->kinds & kind)) return 0;
    int64_t number = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
    if (!control->first || number < control->first || number > control->last) return 0;
    if (control->action > 0) return control->action;
    RAW(kill, getpid(), -control->action);
    return 0;
}

static void note(enum entry entry, const char *name, int64_t offset, const void *data, int64_t length) {
    if (journal < 0 || !name) return;
    int64_t head[4] = {entry, strlen(name), offset, length};
    struct iovec parts[3] = {{head, sizeof head}, {(void *)name, head[1]}, {(void *)data, length}};
    RAW(writev, journal, parts, 3);
}

/* Run a call on a file of ours: struck, or done and noted in one step. */
#define ON(kind, name, call, noted)                                                                                    \
    do {                                                                                                               \
        if (!(name)) return call;                                                                                      \
        int error = strike(kind);                                                                                      \
        if (error) return errno = error, -1;                                                                           \
        if (journal < 0) return call;                                                                                  \
        pthread_mutex_lock(&one_at_a_time);                                                                            \
        long result = call;                                                                                            \
        int kept = errno;                                                                                              \
        if (result >= 0) noted;                                                                                        \
        pthread_mutex_unlock(&one_at_a_time);                                                                          \
        errno = kept;                                                                                                  \
        return result;                                                                                                 \
    } while (0)

static int open_at(int where, const char *path, int flags, mode_t mode) {
    const char *boot_id = getenv("HOLDLOG_TEST_BOOT_ID");
    if (boot_id && path && !strcmp(path, BOOT_ID)) path = boot_id;
    const char *name = ours(path);
    if (!name) return RAW(openat, where, path, flags, mode);
    struct stat about;
    int is_new = flags & O_CREAT && stat(path, &about);
    int error = strike(is_new ? NAME : READ);
    if (error) return errno = error, -1;
    int file = RAW(openat, where, path, flags, mode);
    if (file < 0 || file >= FILES) return file;
    free(names[file]);
    names[file] = strdup(name);
    if (is_new) note(CREATED, name, 0, "", 0);
    if (flags & O_TRUNC && !is_new) note(TRUNCATED, name, 0, "", 0);
    return file;
}

#define MODE                                                                                                           \
    va_list more;                                                                                                      \
    va_start(more, flags);                                                                                             \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                                            \
    va_end(more)

int open(const char *path, int flags, ...) { MODE; return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE; return open_at(AT_FDCWD, path, flags, mode); }
int openat(int where, const char *path, int flags, ...) { MODE; return open_at(where, path, flags, mode); }
int openat64(int where, const char *path, int flags, ...) { MODE; return open_at(where, path, flags, mode); }

int close(int file) {
    if (name_of(file)) {
        free(names[file]);
        names[file] = NULL;
    }
    return RAW(close, file);
}

ssize_t pread64(int file, void *data, size_t length, off64_t at) {
    ON(READ, name_of(file), RAW(pread64, file, data, length, at), (void)0);
}

ssize_t read(int file, void *data, size_t length) {
    ON(READ, name_of(file), RAW(read, file, data, length), (void)0);
}

ssize_t pwrite64(int file, const void *data, size_t length, off64_t at) {
    ON(WRITE, name_of(file), RAW(pwrite64, file, data, length, at), note(WROTE, names[file], at, data, result));
}

ssize_t write(int file, const void *data, size_t length) {
    ON(WRITE, name_of(file), RAW(write, file, data, length),
       note(WROTE, names[file], RAW(lseek, file, 0, SEEK_CUR) - result, data, result));
}

int ftruncate64(int file, off64_t size) {
    ON(CUT, name_of(file), RAW(ftruncate, file, size), note(TRUNCATED, names[file], size, "", 0));
}

int fdatasync(int file) { ON(SYNC, name_of(file), RAW(fdatasync, file), note(SYNCED, names[file], 0, "", 0)); }
int fsync(int file) { ON(SYNC, name_of(file), RAW(fsync, file), note(SYNCED, names[file], 0, "", 0)); }

int unlink(const char *path) {
    ON(NAME, ours(path), RAW(unlinkat, AT_FDCWD, path, 0), note(UNLINKED, ours(path), 0, "", 0));
}

int rename(const char *from, const char *to) {
    ON(NAME, ours(from), RAW(renameat2, AT_FDCWD, from, AT_FDCWD, to, 0),
       note(RENAMED, ours(from), 0, ours(to) ? ours(to) : "", ours(to) ? strlen(ours(to)) : 0));
}

int link(const char *from, const char *to) {
    ON(NAME, ours(from), RAW(linkat, AT_FDCWD, from, AT_FDCWD, to, 0),
       note(LINKED, ours(from), 0, ours(to) ? ours(to) : "", ours(to) ? strlen(ours(to)) : 0));
}

int mkdir(const char *path, mode_t mode) { ON(NAME, ours(path), RAW(mkdirat, AT_FDCWD, path, mode), (void)0); }
int flock(int file, int operation) { ON(LOCK, name_of(file), RAW(flock, file, operation), (void)0); }

int fcntl64(int file, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    ON(RANGE, locks ? name_of(file) : NULL, RAW(fcntl, file, command, argument), (void)0);
}

int fcntl(int file, int command, ...) __attribute__((alias("fcntl64")));
ssize_t pread(int, void *, size_t, off_t) __attribute__((alias("pread64")));
ssize_t pwrite(int, const void *, size_t, off_t) __attribute__((alias("pwrite64")));
int ftruncate(int, off_t) __attribute__((alias("ftruncate64")));

/* Clocks. */

static int64_t real(clockid_t clock) {
    struct timespec now;
    RAW(clock_gettime, clock, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static int64_t shown(clockid_t clock) {
    int64_t now = real(clock);
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return now + control->wall;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
        return control->stands ? control->stands : now + control->steady;
    case CLOCK_BOOTTIME:
        return now + control->asleep;
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

/* PostgreSQL's clock. */
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int64_t at = shown(CLOCK_REALTIME);
    *now = (struct timeval){.tv_sec = at / SECOND, .tv_usec = at % SECOND / 1000};
    return 0;
}

/* What sleeps until a time of a clock that is shown to it must sleep until that of the kernel's. */

static struct timespec kernels(clockid_t clock, const struct timespec *until) {
    return as_timespec(until->tv_sec * SECOND + until->tv_nsec + real(clock) - shown(clock));
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* In slices of 10 ms, so that threads that wait wake up when the test moves the clock: those that beat, too. */
int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until) {
    for (;;) {
        struct timespec at = kernels(clock, until), slice = as_timespec(real(clock) + SECOND / 100);
        int is_last = at.tv_sec * SECOND + at.tv_nsec <= slice.tv_sec * SECOND + slice.tv_nsec;
        if (!NEXT(sem_clockwait)(semaphore, clock, is_last ? &at : &slice)) return 0;
        if (is_last || errno != ETIMEDOUT) return -1;
    }
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
    return RAW(clock_nanosleep, clock, flags, &at, left) < 0 ? errno : 0;
}
