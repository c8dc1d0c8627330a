/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats.h"

static const struct kvr_counter counters[] = {LOAD_COUNTER_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END};

static const struct kvr_equation equations[] = {
	{KVR_TERMS(LOAD_REQUESTS), KVR_TERMS(LOAD_SENT, LOAD_NOT_SENT)},
	{KVR_TERMS(LOAD_SENT),
	 KVR_TERMS(LOAD_COMPLETED, LOAD_FAILED, LOAD_CANCELLED, LOAD_LOST, LOAD_IN_FLIGHT)},
	{0},
};

const struct kvr_stats_def load_stats_def = {"load", counters, equations};
