/* SPDX-License-Identifier: BSD-3-Clause */

/* The only part that needs librte_telemetry. */

#include "kvr_stats.h"

#include <rte_telemetry.h>

int kvr_stats_tel(const struct kvr_stats_def *def, const uint64_t v[], struct rte_tel_data *dict)
{
	for (unsigned int i = 0; def->counters[i].name != NULL; i++) {
		const int rc = rte_tel_data_add_dict_u64(dict, def->counters[i].name, v[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}
