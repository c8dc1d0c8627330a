/* SPDX-License-Identifier: BSD-3-Clause */
#include "source_pvt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvr_errno.h"

struct kvr_source_rate kvr_source_rate(uint32_t per_s, uint32_t burst)
{
	struct kvr_source_rate r = {0};

	if (per_s == 0)
		return r;
	r.each_ns = UINT64_C(1000000000) / per_s;
	r.burst_ns = burst > 1 ? (burst - 1) * r.each_ns : 0;
	return r;
}

struct kvr_source_table *kvr_source_create(uint32_t n, uint64_t seed)
{
	struct kvr_source_table *t;

	if (n < WAYS || n > 1u << 20 || (n & (n - 1)) != 0)
		return kvr_null(EINVAL);
	t = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*t));
	if (t == NULL)
		return kvr_null(ENOMEM);
	memset(t, 0, sizeof(*t));
	t->seed = seed;
	t->mask = n / WAYS - 1;
	t->rest.key = SHARED_ALL;
	t->keys = aligned_alloc(RTE_CACHE_LINE_SIZE, n / WAYS * sizeof(*t->keys));
	t->entry = aligned_alloc(RTE_CACHE_LINE_SIZE, n * sizeof(*t->entry));
	if (t->keys == NULL || t->entry == NULL) {
		kvr_source_destroy(t);
		return kvr_null(ENOMEM);
	}
	memset(t->keys, 0, n / WAYS * sizeof(*t->keys));
	memset(t->entry, 0, n * sizeof(*t->entry));
	return t;
}

void kvr_source_destroy(struct kvr_source_table *t)
{
	if (t == NULL)
		return;
	free(t->keys);
	free(t->entry);
	free(t);
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
