/* SPDX-License-Identifier: BSD-3-Clause */
/* Table of the counters of the scheduler. */
#include "sched_pvt.h"

#define C(name)				 KVR_SCHED_C_##name
#define ERRORS				 KVR_SCHED_C_ERRORS
#define POLLED				 KVR_SCHED_C_POLL_ERRORS
#define REASON(code, counter, help)	 ERRORS + KVR_SCHED_ERR_##code,
#define POLL_REASON(code, counter, help) POLLED + KVR_SCHED_ERR_##code,
#define ERROR_ROW(code, counter, help)                                                             \
	[ERRORS + KVR_SCHED_ERR_##code] = {"errors_" #counter, "requests", help, 0},
#define POLL_ROW(code, counter, help)                                                              \
	[POLLED + KVR_SCHED_ERR_##code] = {"poll_errors_" #counter, "requests",                    \
					   help ", of a request that waited", 0},

#define SUM_ROWS                                                                                   \
	[ERRORS] = {"errors", "requests", "requests refused, by reason in errors_*", 0},           \
	[POLLED] = {"poll_errors", "requests", "of them refused after they had waited", 0},

static const struct kvr_counter counters[] = {
	KVR_SCHED_COUNTER_LIST(KVR_COUNTER_ROW) SUM_ROWS KVR_SCHED_ERR_LIST(ERROR_ROW)
		KVR_SCHED_ERR_LIST(POLL_ROW) KVR_COUNTER_END};

static const struct kvr_equation equations[] = {
	{KVR_TERMS(C(CALLS), POLLED), KVR_TERMS(C(BOOKED_AT_ONCE), C(QUEUED), C(QUERIES), ERRORS)},
	{KVR_TERMS(C(QUEUED)),
	 KVR_TERMS(C(ADMITTED), C(CANCELLED_WAITING), POLLED, C(WAITING_NOW))},
	{KVR_TERMS(C(BOOKED_AT_ONCE), C(ADMITTED)),
	 KVR_TERMS(C(FINISHED), C(CANCELLED_BOOKED), C(EXPIRED), C(DROPPED), C(BOOKED_NOW))},
	{KVR_TERMS(C(EXPIRED)), KVR_TERMS(C(RELEASED_ENDED), C(RELEASED_NOW))},
	{KVR_TERMS(C(PROBES)), KVR_TERMS(C(PROBES_REFUSED), C(PROBES_ENDED), C(PROBES_NOW))},
	{KVR_TERMS(ERRORS), (const uint16_t[]){KVR_SCHED_ERR_LIST(REASON) KVR_TERMS_END}},
	{KVR_TERMS(ERRORS + KVR_SCHED_ERR_QUEUE_REJECTED),
	 KVR_TERMS(C(LIMIT_REQUESTS), C(LIMIT_ISL), C(LIMIT_CACHED))},
	{KVR_TERMS(POLLED), (const uint16_t[]){KVR_SCHED_ERR_LIST(POLL_REASON) KVR_TERMS_END}},
	{0},
};

const struct kvr_stats_def kvr_sched_stats_def = {"sched", counters, equations};

_Static_assert(sizeof(struct kvr_sched_counters) == KVR_SCHED_COUNTERS * sizeof(kvr_cell_t),
	       "the struct is a row");

#define AT(code, counter, help) [KVR_E_##code] = KVR_SCHED_ERR_##code,

const uint8_t kvr_sched__err_at[KVR_E_MAX] = {KVR_SCHED_ERR_LIST(AT)};
