/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of a worker: its silence, changes with their log lines, and the check of new times
 * against its WELCOME. */
#include "control/log.h"
#include "control/thread.h"

#include <errno.h>
#include <stdio.h>

uint64_t worker_silence(const struct router *rt, const struct kvr_worker *worker)
{
	/* A heartbeat that no tick has read yet. */
	if (atomic_load_explicit(&worker->beat->received_ns, memory_order_relaxed) !=
	    worker->read_ns)
		return 0;
	/* A time ahead of the clock, which may stand still, is no silence. */
	return rt->ctl->live.now_ns > worker->last_seen_ns
		       ? rt->ctl->live.now_ns - worker->last_seen_ns
		       : 0;
}

void worker_set_state(struct router *rt, struct kvr_worker *worker, enum kvr_wire_worker_state to,
		      const char *why)
{
	enum kvr_wire_worker_state from = worker->state;
	const uint64_t silent_ms = worker_silence(rt, worker) / 1000000;
	const bool loss = kvr_worker_is_loss(worker, from, to, silent_ms >= rt->conf.opt.dead_ms);
	char where[KVR_PATH_TEXT];

	if (kvr_worker_set_state(worker, to, rt->control.now_ns) != 0)
		return;
	rt->ctl->lost += loss && to == KVR_WORKER_GONE;
	log_worker(worker->id,
		   KVR_LOG_ABOUT(.level = loss ? KVR_LOG_WARNING : KVR_LOG_INFO,
				 .worker = &worker->id, .pool = pool_of(rt, worker)->name,
				 .addr = kvr_path_text(&worker->path, where, sizeof(where)),
				 .reason = why),
		   "worker %" PRIu64 " %s -> %s: last message %" PRIu64 " ms ago, %u bookings",
		   worker->id, kvr_worker_state_name(from), kvr_worker_state_name(to), silent_ms,
		   worker->bookings);
}

uint64_t control_lost_workers(const struct router *rt)
{
	return rt->ctl->lost;
}

int control_check_times(const struct router *rt, const struct kvr_router_options *next, char *err,
			size_t errlen)
{
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++) {
		const struct kvr_worker *worker = kvr_registry_at(rt->registry, i);

		if (worker->state == KVR_WORKER_GONE || worker->welcome_beat_ms < next->suspect_ms)
			continue;
		snprintf(
			err, errlen,
			"worker %" PRIu64
			" reports every %u ms, so suspect_ms %u would make it suspect; set suspect_ms above that, or after the worker registers again",
			worker->id, worker->welcome_beat_ms, next->suspect_ms);
		return -EINVAL;
	}
	return 0;
}
