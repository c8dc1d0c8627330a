/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LD_PRELOAD: while the file named by KVR_CLOCK exists, the wall clock is shifted by the seconds in
 * it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

int gettimeofday(struct timeval *tv, void *tz)
{
	int (*const real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
	const char *name = getenv("KVR_CLOCK");
	FILE *f = name != NULL ? fopen(name, "re") : NULL;
	const int rc = real(tv, tz);
	long s = 0;

	if (f != NULL) {
		if (fscanf(f, "%ld", &s) == 1)
			tv->tv_sec += s;
		fclose(f);
	}
	return rc;
}
