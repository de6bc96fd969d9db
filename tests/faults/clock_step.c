/* Steps the wall clock of a process: LD_PRELOAD it, and write seconds as a 64-bit integer to the file CLOCK_STEP. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static int (*real_gettime)(clockid_t, struct timespec *);
static volatile int64_t *step;

__attribute__((constructor)) static void start(void) {
  real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("CLOCK_STEP");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) step = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real_gettime) start();
  int answer = real_gettime(clock, now);
  if (answer == 0 && step && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *step;
  return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  int answer = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return answer;
}

time_t time(time_t *now) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now) *now = precise.tv_sec;
  return precise.tv_sec;
}
