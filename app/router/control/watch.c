/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that observes the start. */
#include "control/watch.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "control/log.h"
#include "state/router.h"

#define LOOK_MS	  50u
#define PATIENCE  300u	/* ms from the signal to the exit */
#define SAY_EVERY 1000u /* ms */

static _Atomic(const char *) stage;

static void *watch_main(void *arg)
{
	const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
	struct router *rt = arg;
	uint32_t ms = 0, told = 0, quit_ms = 0;
	const char *now;

	for (;;) {
		nanosleep(&pause, NULL);
		ms += LOOK_MS;
		now = atomic_load_explicit(&stage, memory_order_acquire);
		if (now == NULL)
			return NULL;
		if (ms - told >= SAY_EVERY) {
			told = ms;
			log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO),
				 "starting: %s, %u s, %u MiB of memory", now, ms / 1000,
				 rt->conf.opt.memory_mb);
		}
		if (!atomic_load_explicit(&rt->quit, memory_order_relaxed))
			continue;
		quit_ms += LOOK_MS;
		if (quit_ms < PATIENCE)
			continue;
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = router_signal(rt)),
			 "stopped during the start (%s)", now);
		log_flush(200);
		_exit(0); /* as after kill -9; the next start cleans up */
	}
}

void watch_stage(const char *name)
{
	atomic_store_explicit(&stage, name, memory_order_release); /* pairs with the load above */
}

void watch_start(struct router *rt)
{
	sigset_t all, old;
	pthread_t thread;

	watch_stage("configuration");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals go to the main thread */
	if (pthread_create(&thread, NULL, watch_main, rt) == 0) {
		pthread_setname_np(thread, "kvr-watch");
		pthread_detach(thread);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}
