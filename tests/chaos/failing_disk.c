/* Makes calls on files below a folder fail while a file with the number of an error exists.

   FAILING_DISK_FOLDER is the folder, FAILING_DISK_ERROR_FILE the file. With EROFS, only what changes
   something fails. Preloaded into the processes of a TaskManager (tests/chaos/failing_disk.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int present_error(void) {
    const char *file = getenv("FAILING_DISK_ERROR_FILE");
    char text[16] = "";
    int fd = file ? syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd < 0) return 0;
    syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    return atoi(text);
}

static int is_inside(const char *path) {
    const char *folder = getenv("FAILING_DISK_FOLDER");
    return folder && path && !strncmp(path, folder, strlen(folder));
}

static int is_open_inside(int fd) {
    char name[32], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, name, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return is_inside(path);
}

/* Returns whether a call fails, with errno set. */
static int fails(int (*inside)(int), int fd, const char *path, int changes) {
    int before = errno, error = present_error();
    errno = before;
    if (!error || (error == EROFS && !changes)) return 0;
    if (!(path && path[0] == '/' ? is_inside(path) : inside(fd))) return 0;
    errno = error;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OF_FD(type, name, parameters, arguments, changes)      \
    type name parameters {                                     \
        if (fails(is_open_inside, fd, NULL, changes)) return -1; \
        return REAL(name) arguments;                           \
    }
#define OF_PATH(type, name, parameters, arguments)             \
    type name parameters {                                     \
        if (fails(is_open_inside, AT_FDCWD, path, 1)) return -1; \
        return REAL(name) arguments;                           \
    }
#define OF_OPEN(name, parameters, arguments, at)                                  \
    int name parameters {                                                         \
        va_list more;                                                             \
        va_start(more, flags);                                                    \
        int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, int) : 0;       \
        va_end(more);                                                             \
        if (fails(is_open_inside, at, path, (flags & O_ACCMODE) != O_RDONLY)) return -1; \
        return REAL(name) arguments;                                              \
    }

OF_OPEN(open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OF_OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OF_OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode), at)
OF_OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode), at)
OF_FD(ssize_t, read, (int fd, void *to, size_t size), (fd, to, size), 0)
OF_FD(ssize_t, pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at), 0)
OF_FD(ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at), 0)
OF_FD(ssize_t, write, (int fd, const void *from, size_t size), (fd, from, size), 1)
OF_FD(ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at), 1)
OF_FD(ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at), 1)
OF_FD(ssize_t, writev, (int fd, const struct iovec *from, int count), (fd, from, count), 1)
OF_FD(int, fsync, (int fd), (fd), 1)
OF_FD(int, fdatasync, (int fd), (fd), 1)
OF_FD(int, ftruncate, (int fd, off_t size), (fd, size), 1)
OF_FD(int, ftruncate64, (int fd, off64_t size), (fd, size), 1)
OF_FD(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), 1)
OF_FD(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags), 1)
OF_PATH(int, unlink, (const char *path), (path))
OF_PATH(int, rmdir, (const char *path), (path))
OF_PATH(int, mkdir, (const char *path, mode_t mode), (path, mode))
OF_PATH(int, rename, (const char *path, const char *to), (path, to))
