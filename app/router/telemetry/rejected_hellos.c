/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: workers whose last HELLO was rejected. */
#include "telemetry/rejected_hellos.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include <rte_telemetry.h>

#include "control/thread.h"
#include "kvr_frame.h"
#include "kvr_telemetry.h"

static struct rte_tel_data *rejection_dict(const struct router *rt,
					   const struct hello_rejected *entry)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "code", kvr_code_name(entry->code));
	rte_tel_data_add_dict_string(d, "text", entry->text);
	rte_tel_data_add_dict_string(d, "address", entry->address);
	rte_tel_data_add_dict_u64(d, "times", entry->times);
	rte_tel_data_add_dict_u64(d, "age_ms", since_ns(now_ns(rt), entry->at_ns) / 1000000);
	return d;
}

int rejected_hellos(void *arg, const char *params, struct rte_tel_data *d)
{
	const struct router *rt = arg;
	struct rte_tel_data *list = rte_tel_data_alloc();
	uint64_t n = 0;

	RTE_SET_USED(params);
	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(list);
	for (uint32_t i = 0; i < REFUSED_KEPT; i++) {
		const struct hello_rejected *entry = &rt->ctl->refused[i];
		char id[24];

		if (entry->worker == 0)
			continue;
		snprintf(id, sizeof(id), "%" PRIu64, entry->worker);
		kvr_telemetry_dict_part(list, id, rejection_dict(rt, entry));
		n++;
	}
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "total", n);
	rte_tel_data_add_dict_container(d, "workers", list, 0);
	return 0;
}
