/* A time of day that tests can set, for one process: LD_PRELOAD=clock_shim.so CLOCK_SHIM=<file>.
 *
 * The file is made if it is not there.  It holds a 64-bit integer in this machine's byte order: the nanoseconds
 * that the time of day is ahead.  All other clocks stay as they are.
 *
 * System calls are made directly: looking up the next definition of a symbol may allocate memory, and the
 * server's allocator asks for the time before it is ready for that.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t NS = 1000000000;
static const volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
  const size_t size = sizeof(int64_t);
  const char *path = getenv("CLOCK_SHIM");
  int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0 || ftruncate(fd, size))
    abort();
  void *page = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (page == MAP_FAILED)
    abort();
  offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
  int result = (int)syscall(SYS_clock_gettime, clock, ts);
  if (result || !offset || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
    return result;
  int64_t real = ts->tv_sec * NS + ts->tv_nsec;
  int64_t shown = real + *offset;
  ts->tv_sec = shown / NS;
  ts->tv_nsec = shown % NS;
  return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  struct timespec ts;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &ts);
  tv->tv_sec = ts.tv_sec;
  tv->tv_usec = ts.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (seconds)
    *seconds = ts.tv_sec;
  return ts.tv_sec;
}
