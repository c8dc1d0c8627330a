/* SPDX-License-Identifier: BSD-3-Clause */
/* Definitions of the counter tables and the balance equations between their counters. */
#include "state/counters.h"

#include <ctype.h>
#include <stdio.h>

#include "kvr_frame.h"

static const struct kvr_counter in_counters[] = {INGRESS_COUNTER_LIST(KVR_COUNTER_ROW)
							 KVR_COUNTER_END};

static const struct kvr_equation in_equations[] = {
	{KVR_TERMS(IN_FRAMES),
	 KVR_TERMS(IN_ROUTES, IN_FRAGMENTS, IN_RELAYED, IN_REQUEST_FRAMES, IN_EVENTS, IN_CONTROL,
		   IN_HEARTBEATS, IN_REJECTED, IN_DROPPED)},
	{KVR_TERMS(IN_DROPPED),
	 KVR_TERMS(IN_SHORT_FRAME, IN_BAD_MAGIC, IN_UNKNOWN_REQUEST, IN_PREMATURE_ACK,
		   IN_RATE_LIMITED, IN_EVENT_QUOTA, IN_RING_FULL)},
	{0},
};

const struct kvr_stats_def router_in_stats = {"ingress", in_counters, in_equations};

static const struct kvr_counter pool_counters[] = {POOL_COUNTER_LIST(KVR_COUNTER_ROW)
							   KVR_COUNTER_END};

static const struct kvr_equation pool_equations[] = {
	{KVR_TERMS(PC_ROUTES),
	 KVR_TERMS(PC_QUERIES, PC_DUPLICATES, PC_REJECTED, PC_ROUTED, PC_QUEUED, PC_DISAGG)},
	{KVR_TERMS(PC_QUEUED, PC_LEG_QUEUED),
	 KVR_TERMS(PC_ADMITTED, PC_QUEUE_ABANDONED, PC_ADMISSION_REJECTED, PC_WAITING)},
	{KVR_TERMS(PC_DISAGG, PC_RETRIES), KVR_TERMS(PC_LEG_ROUTED, PC_LEG_QUEUED, PC_LEG_REJECTED,
						     PC_LEG_ABANDONED, PC_LEGS_PENDING)},
	{KVR_TERMS(PC_ROUTED, PC_LEG_ROUTED, PC_ADMITTED),
	 KVR_TERMS(PC_FINISHED, PC_ERRORED, PC_OVERLOADED, PC_CANCELLED, PC_WORKER_REJECTED,
		   PC_LOST, PC_EXPIRED, PC_STOPPED, PC_UNACKNOWLEDGED, PC_LIVE)},
	{0},
};

const struct kvr_stats_def router_pool_stats = {"pool", pool_counters, pool_equations};

static const struct kvr_counter session_counters[] = {SESSION_COUNTER_LIST(KVR_COUNTER_ROW)
							      KVR_COUNTER_END};

static const struct kvr_equation session_equations[] = {
	{KVR_TERMS(SC_OPENS),
	 KVR_TERMS(SC_BOUND, SC_OPEN_REJECTED, SC_OPEN_UNANSWERED, SC_OPEN_ENDED, SC_OPENING)},
	{KVR_TERMS(SC_BOUND, SC_AFFINITY_BOUND, SC_RESTORED),
	 KVR_TERMS(SC_REBOUND, SC_UNBOUND, SC_EXPIRED, SC_INVALIDATED, SC_LIVE)},
	{KVR_TERMS(SC_CLOSES), KVR_TERMS(SC_CLOSED, SC_CLOSE_UNANSWERED, SC_CLOSE_DROPPED,
					 SC_CLOSE_WORKER_GONE, SC_CLOSING)},
	{0},
};

const struct kvr_stats_def router_session_stats = {"session", session_counters, session_equations};

static const struct kvr_counter event_counters[] = {EVENT_COUNTER_LIST(KVR_COUNTER_ROW)
							    KVR_COUNTER_END};

static const struct kvr_equation event_equations[] = {
	{KVR_TERMS(EC_FRAMES),
	 KVR_TERMS(EC_APPLIED, EC_ALREADY_APPLIED, EC_GAPS, EC_DUMPS, EC_STALE_EPOCH, EC_DEFERRED)},
	{0},
};

const struct kvr_stats_def router_event_stats = {"event", event_counters, event_equations};

static const struct kvr_counter log_counters[] = {LOG_COUNTER_LIST(KVR_COUNTER_ROW)
							  KVR_COUNTER_END};
const struct kvr_stats_def router_log_stats = {"log", log_counters, NULL};

static const struct kvr_counter lcore_counters[] = {LCORE_COUNTER_LIST(KVR_COUNTER_ROW)
							    KVR_COUNTER_END};
const struct kvr_stats_def router_lcore_stats = {"lcore", lcore_counters, NULL};

static const struct kvr_counter stage_counters[] = {STAGE_COUNTER_LIST(KVR_COUNTER_ROW)
							    KVR_COUNTER_END};
const struct kvr_stats_def router_stage_stats = {"stage", stage_counters, NULL};

/* "NoEndpoints" -> "no_endpoints"; codes without a name are "code_N". */
static void to_snake_case(unsigned int code, char *out, size_t len)
{
	const char *s = kvr_code_name(code);
	size_t n = 0;

	if (s[0] == '?') {
		snprintf(out, len, "code_%u", code);
		return;
	}
	for (; *s != '\0' && n + 2 < len; s++) {
		if (isupper((unsigned char)*s) && n > 0)
			out[n++] = '_';
		out[n++] = (char)tolower((unsigned char)*s);
	}
	out[n] = '\0';
}

const struct kvr_stats_def *router_reject_stats(void)
{
	static char names[KVR_E_MAX][48];
	static struct kvr_counter counters[KVR_E_MAX + 1];
	static const struct kvr_stats_def def = {"reject", counters, NULL};

	for (unsigned int i = 0; i < KVR_E_MAX && counters[i].name == NULL; i++) {
		to_snake_case(i, names[i], sizeof(names[i]));
		counters[i] =
			(struct kvr_counter){names[i], "messages", "REJECTED with this code", 0};
	}
	return &def;
}
