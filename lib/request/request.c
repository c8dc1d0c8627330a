/* SPDX-License-Identifier: BSD-3-Clause */
/* Names, counters and initialization of a pool. */
#include "kvr_request.h"

static const char *const states[KVR_RQ_STATES_N] = {
	[KVR_RQS_FREE] = "free",	 [KVR_RQS_UNDECIDED] = "undecided",
	[KVR_RQS_DECIDING] = "deciding", [KVR_RQS_QUEUED] = "queued",
	[KVR_RQS_HELD] = "held",	 [KVR_RQS_SENT] = "sent",
	[KVR_RQS_RUNNING] = "running",	 [KVR_RQS_ENDED] = "ended",
};

static const char *const events[KVR_RQ_EVENTS_N] = {
	[KVR_RQE_ARRIVED] = "arrived",
	[KVR_RQE_ROOM] = "room",
	[KVR_RQE_NO_ROOM] = "no_room",
	[KVR_RQE_LINGERED] = "lingered",
	[KVR_RQE_STOP] = "stop",
	[KVR_RQE_UNACKED] = "unacked",
	[KVR_RQE_ROUTED] = "routed",
	[KVR_RQE_QUEUED] = "queued",
	[KVR_RQE_REFUSED] = "refused",
	[KVR_RQE_ADMITTED] = "admitted",
	[KVR_RQE_NOT_ADMITTED] = "not_admitted",
	[KVR_RQE_LOST] = "lost",
	[KVR_RQE_EXPIRED] = "expired",
	[KVR_RQE_TAKEN] = "taken",
	[KVR_RQE_DECLINED] = "declined",
	[KVR_RQE_ITEM] = "item",
	[KVR_RQE_FIN] = "fin",
	[KVR_RQE_ABORTED] = "aborted",
	[KVR_RQE_OPENED] = "opened",
	[KVR_RQE_NOT_OPENED] = "not_opened",
	[KVR_RQE_UNANSWERED] = "unanswered",
	[KVR_RQE_CANCEL] = "cancel",
	[KVR_RQE_REPEATED] = "repeated",
	[KVR_RQE_PROBED] = "probed",
	[KVR_RQE_FIN_ACKED] = "fin_acked",
	[KVR_RQE_DEADLINE] = "deadline",
	[KVR_RQE_CLIENT_GONE] = "client_gone",
	[KVR_RQE_LEASE_OVER] = "lease_over",
	[KVR_RQE_UNWANTED] = "unwanted",
};

static const char *const orders[KVR_RQ_ORDERS_N] = {
	[KVR_RQO_NONE] = "none",
	[KVR_RQO_DECIDE] = "decide",
	[KVR_RQO_HOLD] = "hold",
	[KVR_RQO_RENEW] = "renew",
	[KVR_RQO_SEND] = "send",
	[KVR_RQO_BOOKED] = "booked",
	[KVR_RQO_ABORT] = "abort",
	[KVR_RQO_OPEN] = "open",
	[KVR_RQO_UNOPEN] = "unopen",
	[KVR_RQO_CLOSE] = "close",
	[KVR_RQO_ACCEPTED] = "accepted",
	[KVR_RQO_REJECTED] = "rejected",
	[KVR_RQO_CANCELLED] = "cancelled",
	[KVR_RQO_KEEP] = "KEEP",
	[KVR_RQO_PREFILL_DONE] = "prefill_done",
	[KVR_RQO_OUTPUT] = "output",
	[KVR_RQO_FREE] = "free",
	[KVR_RQO_OUTCOME] = "outcome",
	[KVR_RQO_LEAVE] = "leave",
	[KVR_RQO_PREDICT] = "predict",
	[KVR_RQO_PREFILL] = "prefill",
	[KVR_RQO_SESSION] = "session",
	[KVR_RQO_END] = "end",
	[KVR_RQO_RELEASE] = "release",
	[KVR_RQO_MESSAGE_OVER] = "message_over",
	[KVR_RQO_DONE] = "done",
};

const char *kvr_request_state_name(unsigned int state)
{
	return state < KVR_RQ_STATES_N ? states[state] : "?";
}

const char *kvr_request_event_name(unsigned int event)
{
	return event < KVR_RQ_EVENTS_N ? events[event] : "?";
}

const char *kvr_request_order_name(unsigned int order)
{
	return order < KVR_RQ_ORDERS_N ? orders[order] : "?";
}

/* ---- counters ---------------------------------------------------------------------------- */

static const struct kvr_counter counters[] = {KVR_REQUEST_COUNTER_LIST(KVR_COUNTER_ROW)
						      KVR_COUNTER_END};

const struct kvr_stats_def kvr_request_stats = {"request", counters, NULL};

/* ---- pools ------------------------------------------------------------------------------- */

void kvr_request_pool_init(struct kvr_rq_pool *p, const struct kvr_pool_conf *conf,
			   struct kvr_session *sessions, kvr_cell_t *count)
{
	p->conf = conf;
	p->sessions = sessions;
	p->count = count;
	/* Predictions matter only to modes that use the cache. */
	p->predict = kvr_pool_mode(conf->mode)->needs_cache &&
		     (conf->use_kv_events ? conf->predicted_ttl_s > 0 : conf->ttl_s > 0);
	p->affinity_ns = sessions == NULL || conf->affinity_ttl_s == KVR_POOL_NONE
				 ? 0
				 : conf->affinity_ttl_s * UINT64_C(1000000000);
	p->reroutes = (uint8_t)conf->reroutes;
	p->dispatch_ns = conf->dispatch_ms == KVR_POOL_NONE ? KVR_RQ_DISPATCH_NS
							    : conf->dispatch_ms * UINT64_C(1000000);
	for (uint32_t i = 0; i < KVR_RQ_BUCKETS; i++)
		LIST_INIT(&p->opening[i]);
}
