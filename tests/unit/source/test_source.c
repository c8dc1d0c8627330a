/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_source.h"

#include "kvr_test.h"
#include <errno.h>

#define S UINT64_C(1000000000)

static struct kvr_path make_path4(uint32_t a)
{
	struct kvr_path path = {.family = 4, .udp_port = 1000};

	path.ip[10] = path.ip[11] = 0xff;
	a = __builtin_bswap32(a);
	memcpy(path.ip + 12, &a, 4);
	return path;
}

static struct kvr_path make_path6(uint64_t net, uint64_t host)
{
	struct kvr_path path = {.family = 6};

	net = __builtin_bswap64(net);
	host = __builtin_bswap64(host);
	memcpy(path.ip, &net, 8);
	memcpy(path.ip + 8, &host, 8);
	return path;
}

static uint64_t make_key4(uint32_t a)
{
	const struct kvr_path path = make_path4(a);

	return kvr_source_key(&path);
}

static uint64_t make_key6(uint64_t net, uint64_t host)
{
	const struct kvr_path path = make_path6(net, host);

	return kvr_source_key(&path);
}

static void ports_and_hosts_of_a_64_are_one_source(void)
{
	struct kvr_path path = make_path4(0x0a000001), b = make_path4(0x0a000001);

	b.udp_port = 2;
	CU_ASSERT_EQUAL(kvr_source_key(&path), kvr_source_key(&b));
	CU_ASSERT_NOT_EQUAL(make_key4(0x0a000001), make_key4(0x0a000002));
	CU_ASSERT_EQUAL(make_key6(0x20010db800000001, 1), make_key6(0x20010db800000001, 99));
	CU_ASSERT_NOT_EQUAL(make_key6(0x20010db800000001, 1), make_key6(0x20010db800000002, 1));
	CU_ASSERT_NOT_EQUAL(make_key6(UINT64_C(0xfe80) << 48, 1),
			    make_key6(UINT64_C(0xfe80) << 48, 2));
	CU_ASSERT_NOT_EQUAL(make_key6(0, 1), 0);
}

static void a_bucket_allows_its_burst_then_its_rate(void)
{
	const struct kvr_source_rate rate = kvr_source_rate(10, 3), none = kvr_source_rate(0, 3);
	struct kvr_source source = {0};
	uint64_t now = 5 * S;

	for (int i = 0; i < 3; i++)
		CU_ASSERT_TRUE(kvr_source_take(&source, KVR_SOURCE_REQUESTS, &rate, now));
	CU_ASSERT_FALSE(kvr_source_take(&source, KVR_SOURCE_REQUESTS, &rate, now));
	CU_ASSERT_TRUE(
		kvr_source_take(&source, KVR_SOURCE_ANSWERS, &rate, now)); /* a separate bucket */
	now += S / 10;
	CU_ASSERT_TRUE(kvr_source_take(&source, KVR_SOURCE_REQUESTS, &rate, now));
	CU_ASSERT_FALSE(kvr_source_take(&source, KVR_SOURCE_REQUESTS, &rate, now));
	now += 100 * S; /* it fills up to the burst only */
	for (int i = 0; i < 3; i++)
		CU_ASSERT_TRUE(kvr_source_take(&source, KVR_SOURCE_REQUESTS, &rate, now));
	CU_ASSERT_FALSE(kvr_source_take(&source, KVR_SOURCE_REQUESTS, &rate, now));
	CU_ASSERT_TRUE(kvr_source_take(&source, KVR_SOURCE_REQUESTS, &none, now));
}

static void forged_addresses_do_not_displace_an_honest_one(void)
{
	struct kvr_source_table *table = kvr_source_create(64, 7);
	const uint64_t honest = make_key4(0x0a000001);
	struct kvr_source *source;
	uint64_t now = S;

	CU_ASSERT_PTR_NOT_NULL_FATAL(table);
	source = kvr_source_get(table, honest, now);
	source->requests = 42;
	for (uint32_t i = 0; i < 100000; i++) {
		source = kvr_source_get(table, make_key4(0xc0000000u + i * 256), ++now);
		CU_ASSERT_NOT_EQUAL(source->key, honest);
	}
	source = kvr_source_get(table, honest, now);
	CU_ASSERT_EQUAL(source->key, honest);
	CU_ASSERT_EQUAL(source->requests, 42);
	CU_ASSERT_TRUE(kvr_source_shared(table) > 99000);
	CU_ASSERT_TRUE(kvr_source_used(table, now) <= 64);
	/* After the flood the places are free again, without data of the old sources. */
	now += KVR_SOURCE_IDLE_NS;
	CU_ASSERT_EQUAL(kvr_source_used(table, now), 0);
	CU_ASSERT_PTR_NULL(kvr_source_find(table, honest, now));
	source = kvr_source_get(table, make_key4(0xdeadbeef), now);
	CU_ASSERT_EQUAL(source->key, make_key4(0xdeadbeef));
	CU_ASSERT_EQUAL(source->requests, 0);
	CU_ASSERT_PTR_EQUAL(kvr_source_find(table, make_key4(0xdeadbeef), now + 1), source);
	kvr_source_destroy(table);
}

static void sources_without_a_place_use_a_shared_entry(void)
{
	struct kvr_source_table *table = kvr_source_create(8, 7);
	struct kvr_source *source, *b, *c;
	char text[KVR_SOURCE_TEXT];

	CU_ASSERT_PTR_NOT_NULL_FATAL(table);
	/* One set: five hosts, then the shared entries take the remaining places. */
	for (uint32_t i = 0; i < 6; i++)
		kvr_source_get(table, make_key4(0x0a000000 + i), S);
	kvr_source_get(table, make_key6(0x20010db800000001, 1), S);
	kvr_source_get(table, make_key4(0x0b000000), S);
	source = kvr_source_get(table, make_key4(0x0c000001), S);
	CU_ASSERT_STRING_EQUAL(kvr_source_text(source->key, text, sizeof(text)), "others");
	/* A place becomes free: the next source gets its own entry. */
	for (uint32_t i = 1; i < 6; i++)
		kvr_source_get(table, make_key4(0x0a000000 + i), 12 * S);
	kvr_source_get(table, make_key6(0x20010db800000001, 1), 12 * S);
	b = kvr_source_get(table, make_key4(0x0c000001), 12 * S);
	CU_ASSERT_STRING_EQUAL(kvr_source_text(b->key, text, sizeof(text)), "12.0.0.1");
	c = kvr_source_get(table, make_key4(0x0c000002), 12 * S);
	CU_ASSERT_STRING_EQUAL(kvr_source_text(c->key, text, sizeof(text)), "12.0.0.2");
	kvr_source_destroy(table);

	CU_ASSERT_STRING_EQUAL(
		kvr_source_text(make_key6(0x20010db800000001, 1), text, sizeof(text)),
		"2001:db8:0:1::/64");
}

#define ALL KVR_SOURCE_ALL

/* @return for how many of all draws a request is admitted. */
static uint64_t count_admitted(const struct kvr_source_table *table,
			       const struct kvr_source *source, uint32_t part, uint64_t now)
{
	uint64_t n = 0;

	for (uint32_t draw = 0; draw < ALL; draw++)
		n += kvr_source_within_quota(table, source, part, draw, now);
	return n;
}

static void sources_above_the_quota_are_limited(void)
{
	struct kvr_source_table *table = kvr_source_create(64, 7);
	struct kvr_source top[2], *flood, *steady;
	uint32_t at;
	uint64_t now = S;

	CU_ASSERT_PTR_NOT_NULL_FATAL(table);
	flood = kvr_source_get(table, make_key4(1), now);
	steady = kvr_source_get(table, make_key4(2), now);
	/* No source has recent requests: a fragment that arrives one window after its first. */
	CU_ASSERT_TRUE(kvr_source_within_quota(table, steady, ALL / 8, ALL - 1, now));
	for (int i = 0; i < 1000; i++)
		kvr_source_count(table, flood, now);
	for (int i = 0; i < 300; i++)
		kvr_source_count(table, steady, now);
	/* 3/8 is more than the steady source has made; of the flood, as many are admitted. */
	CU_ASSERT_TRUE(kvr_source_within_quota(table, steady, 3 * ALL / 8, ALL - 1, now));
	CU_ASSERT_TRUE(kvr_source_within_quota(table, flood, 3 * ALL / 8, 3 * ALL / 8 - 1, now));
	CU_ASSERT_FALSE(kvr_source_within_quota(table, flood, 3 * ALL / 8, 3 * ALL / 8, now));
	/* With 3/32 both are admitted equally: 93 of 1,000 and 93 of 300. */
	CU_ASSERT_EQUAL(count_admitted(table, flood, 3 * ALL / 32, now) * 1000 / ALL, 93);
	CU_ASSERT_EQUAL(count_admitted(table, steady, 3 * ALL / 32, now) * 300 / ALL, 93);
	CU_ASSERT_TRUE(kvr_source_within_quota(table, flood, ALL, ALL - 1, now));
	CU_ASSERT_FALSE(kvr_source_within_quota(table, steady, 0, 0, now));
	CU_ASSERT_EQUAL((at = 0, kvr_source_top(table, now, &at, top, 0, 2)), 2);
	CU_ASSERT_EQUAL(top[0].key, make_key4(1));
	CU_ASSERT_EQUAL(top[0].count, 1000);
	CU_ASSERT_EQUAL(top[1].count, 300);
	CU_ASSERT_EQUAL(at, UINT32_MAX);
	/* Old requests are forgotten. */
	now += 20 * KVR_SOURCE_WINDOW_NS;
	kvr_source_count(table, steady, now);
	CU_ASSERT_FALSE(kvr_source_within_quota(table, steady, ALL / 2, ALL - 1, now));
	CU_ASSERT_TRUE(kvr_source_within_quota(table, flood, 1, ALL - 1, now));
	CU_ASSERT_EQUAL((at = 0, kvr_source_top(table, now, &at, top, 0, 1)), 1);
	CU_ASSERT_EQUAL(top[0].key, make_key4(2));
	kvr_source_destroy(table);
}

static void sizes_are_checked(void)
{
	CU_ASSERT_PTR_NULL(kvr_source_create(4, 1));
	CU_ASSERT_EQUAL(errno, EINVAL);
	CU_ASSERT_PTR_NULL(kvr_source_create(100, 1));
	kvr_source_destroy(NULL);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(ports_and_hosts_of_a_64_are_one_source),
		KVR_CASE(a_bucket_allows_its_burst_then_its_rate),
		KVR_CASE(forged_addresses_do_not_displace_an_honest_one),
		KVR_CASE(sources_without_a_place_use_a_shared_entry),
		KVR_CASE(sources_above_the_quota_are_limited),
		KVR_CASE(sizes_are_checked),
		CU_TEST_INFO_NULL,
	};
	return kvr_test_run("source", tests);
}
