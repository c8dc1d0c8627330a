/* SPDX-License-Identifier: BSD-3-Clause */
#include "sleep.h"

#include <time.h>

#include "load.h"

void load_nap(struct load *l, bool busy)
{
	const struct timespec nap = {.tv_nsec = LOAD_NAP_US * 1000L};

	if (l->opt->idle == LOAD_IDLE_POLL)
		return;
	if (busy)
		l->busy_at = l->now;
	else if (l->now - l->busy_at >= LOAD_NAP_AFTER_US * l->us)
		nanosleep(&nap, NULL); /* a signal ends it: no harm */
}
