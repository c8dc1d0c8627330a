/* SPDX-License-Identifier: BSD-3-Clause */

/* Creation, destruction and text of sources: everything that is not on the packet path. */

#include "source_pvt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvr_errno.h"

struct kvr_source_rate kvr_source_rate(uint32_t per_s, uint32_t burst)
{
	struct kvr_source_rate rate = {0};

	if (per_s == 0)
		return rate;
	rate.each_ns = UINT64_C(1000000000) / per_s;
	rate.burst_ns = burst > 1 ? (burst - 1) * rate.each_ns : 0;
	return rate;
}

struct kvr_source_table *kvr_source_create(uint32_t n, uint64_t seed)
{
	struct kvr_source_table *table;

	if (n < WAYS || n > 1u << 20 || (n & (n - 1)) != 0)
		return kvr_null(EINVAL);
	table = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*table));
	if (table == NULL)
		return kvr_null(ENOMEM);
	memset(table, 0, sizeof(*table));
	table->seed = seed;
	table->mask = n / WAYS - 1;
	table->rest.key = SHARED_ALL;
	table->keys = aligned_alloc(RTE_CACHE_LINE_SIZE, n / WAYS * sizeof(*table->keys));
	table->entry = aligned_alloc(RTE_CACHE_LINE_SIZE, n * sizeof(*table->entry));
	if (table->keys == NULL || table->entry == NULL) {
		kvr_source_destroy(table);
		return kvr_null(ENOMEM);
	}
	memset(table->keys, 0, n / WAYS * sizeof(*table->keys));
	memset(table->entry, 0, n * sizeof(*table->entry));
	return table;
}

void kvr_source_destroy(struct kvr_source_table *table)
{
	if (table == NULL)
		return;
	free(table->keys);
	free(table->entry);
	free(table);
}

const char *kvr_source_text(uint64_t key, char *buf, size_t len)
{
	const uint64_t tag = key >> 48;
	const bool v6 = tag == SHARED_6;
	const uint64_t net = __builtin_bswap64(v6 ? key << 16 : key);
	uint8_t ip[16] = {0};
	char text[INET6_ADDRSTRLEN] = "";
	struct in_addr a4 = {htonl((uint32_t)(tag == SHARED_4 ? key << 8 : key))};

	memcpy(ip, &net, sizeof(net));
	if (key == SHARED_ALL)
		snprintf(buf, len, "others");
	else if (tag == SHARED_4 || key >> 32 == 0xffff)
		snprintf(buf, len, "%s%s", inet_ntop(AF_INET, &a4, text, sizeof(text)),
			 tag == SHARED_4 ? "/24" : "");
	else if (tag == 0xfe80)
		snprintf(buf, len, "fe80::/10 #%012llx",
			 (unsigned long long)(key & 0xffffffffffff));
	else
		snprintf(buf, len, "%s/%u", inet_ntop(AF_INET6, ip, text, sizeof(text)),
			 v6 ? 48u : 64u);
	return buf;
}
