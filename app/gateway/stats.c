/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats.h"

static const struct kvr_counter rows[] = {GW_COUNTER_LIST(KVR_COUNTER_ROW) KVR_COUNTER_END};

static const struct kvr_equation equations[] = {
	{KVR_TERMS(GW_REQUESTS),
	 KVR_TERMS(GW_IN_FLIGHT, GW_ANSWERED, GW_FAILED, GW_REFUSED, GW_GONE)},
	{0},
};

const struct kvr_stats_def gw_stats = {"gateway", rows, equations};
