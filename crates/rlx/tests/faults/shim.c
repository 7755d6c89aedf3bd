/* Lets one call of the system fail, or all that write from one on: loaded before the C library (LD_PRELOAD).
 *
 * FAULT_AT=N     the Nth call (from 1) of those below fails
 * FAULT_ERRNO=E  with this error
 * FAULT_ON=1     calls that write files fail from the Nth call on, as on a full disk
 * FAULT_HIT=F    the file F is made when a call was made to fail
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;
static long at, error, lasting;
static const char *hit;

__attribute__((constructor)) static void start(void) {
    const char *n = getenv("FAULT_AT"), *e = getenv("FAULT_ERRNO");
    at = n ? atol(n) : 0;
    error = e ? atol(e) : EIO;
    lasting = getenv("FAULT_ON") != NULL;
    hit = getenv("FAULT_HIT");
}

/* Whether this call fails; errno is set then. */
static int fails(int writes) {
    if (!at) return 0;
    long now = atomic_fetch_add(&calls, 1) + 1;
    if (lasting ? !(writes && now >= at) : now != at) return 0;
    if (hit) {
        long fd = syscall(SYS_openat, AT_FDCWD, hit, O_WRONLY | O_CREAT, 0600);
        if (fd >= 0) syscall(SYS_close, fd);
    }
    errno = (int)error;
    return 1;
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                                                     \
    int name(const char *path, int flags, ...) {                                       \
        va_list list;                                                                  \
        va_start(list, flags);                                                         \
        int mode = va_arg(list, int);                                                  \
        va_end(list);                                                                  \
        if (fails((flags & O_ACCMODE) != O_RDONLY)) return -1;                         \
        return REAL(int, name, const char *, int, ...)(path, flags, mode);             \
    }
OPEN(open)
OPEN(open64)

#define MMAP(name, offset_t)                                                           \
    void *name(void *a, size_t n, int prot, int flags, int fd, offset_t offset) {      \
        /* Not those without a file: the start of a process and of threads needs them. */ \
        if (fd >= 0 && fails(0)) return MAP_FAILED;                                    \
        return REAL(void *, name, void *, size_t, int, int, int, offset_t)(a, n, prot, flags, fd, offset); \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

#define CALL(type, failed, writes, name, parameters, types, arguments)                 \
    type name parameters {                                                             \
        if (fails(writes)) return failed;                                              \
        return ((type (*) types)dlsym(RTLD_NEXT, #name)) arguments;                    \
    }
CALL(ssize_t, -1, 0, read, (int fd, void *b, size_t n), (int, void *, size_t), (fd, b, n))
CALL(ssize_t, -1, fd > 2, write, (int fd, const void *b, size_t n), (int, const void *, size_t), (fd, b, n))
CALL(int, -1, 1, rename, (const char *a, const char *b), (const char *, const char *), (a, b))
CALL(int, -1, 1, mkdir, (const char *a, mode_t m), (const char *, mode_t), (a, m))
CALL(int, -1, 0, unlink, (const char *a), (const char *), (a))
CALL(int, -1, 1, fsync, (int fd), (int), (fd))
CALL(int, -1, 1, fdatasync, (int fd), (int), (fd))
CALL(int, -1, 1, ftruncate64, (int fd, off64_t n), (int, off64_t), (fd, n))
CALL(int, -1, 0, flock, (int fd, int how), (int, int), (fd, how))
CALL(int, -1, 0, futimens, (int fd, const struct timespec t[2]), (int, const struct timespec *), (fd, t))
CALL(off64_t, -1, 0, lseek64, (int fd, off64_t n, int how), (int, off64_t, int), (fd, n, how))
CALL(int, -1, 0, statx, (int d, const char *p, int f, unsigned m, struct statx *s),
     (int, const char *, int, unsigned, struct statx *), (d, p, f, m, s))
CALL(DIR *, NULL, 0, opendir, (const char *a), (const char *), (a))
CALL(struct dirent64 *, NULL, 0, readdir64, (DIR *d), (DIR *), (d))

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x) {
    if (fails(0)) return EAGAIN;
    return REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)(t, a, f, x);
}
