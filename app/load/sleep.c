/* SPDX-License-Identifier: BSD-3-Clause */
#include "sleep.h"

#include <time.h>

#include "load.h"

void load_sleep_idle(struct load *l, bool busy)
{
	const struct timespec pause = {.tv_nsec = LOAD_SLEEP_US * 1000L};

	if (l->opt->idle == LOAD_IDLE_POLL)
		return;
	if (busy)
		l->busy_at = l->now;
	else if (l->now - l->busy_at >= LOAD_SLEEP_AFTER_US * l->us)
		nanosleep(&pause, NULL); /* a signal may end it early */
}
