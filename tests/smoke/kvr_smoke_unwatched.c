/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LD_PRELOAD: while the file named by KVR_UNWATCHED exists, the kernel watches no further
 * descriptor of one kind. Its content is the kind: the upper half of the event's data.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

int epoll_ctl(int ep, int op, int fd, struct epoll_event *event)
{
	int (*const real)(int, int, int, struct epoll_event *) = dlsym(RTLD_NEXT, "epoll_ctl");
	const char *name = getenv("KVR_UNWATCHED");
	unsigned long long kind = 0;

	if (op == EPOLL_CTL_ADD && name != NULL) {
		FILE *f = fopen(name, "re");

		if (f != NULL && fscanf(f, "%llu", &kind) == 1 && event->data.u64 >> 32 == kind) {
			fclose(f);
			errno = ENOSPC;
			return -1;
		}
		if (f != NULL)
			fclose(f);
	}
	return real(ep, op, fd, event);
}
