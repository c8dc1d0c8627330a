/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_source.h"

#include "kvr_test.h"
#include <errno.h>

#define S UINT64_C(1000000000)

static struct kvr_path v4(uint32_t a)
{
	struct kvr_path p = {.family = 4, .udp_port = 1000};

	p.ip[10] = p.ip[11] = 0xff;
	a = __builtin_bswap32(a);
	memcpy(p.ip + 12, &a, 4);
	return p;
}

static struct kvr_path v6(uint64_t net, uint64_t host)
{
	struct kvr_path p = {.family = 6};

	net = __builtin_bswap64(net);
	host = __builtin_bswap64(host);
	memcpy(p.ip, &net, 8);
	memcpy(p.ip + 8, &host, 8);
	return p;
}

static uint64_t key4(uint32_t a)
{
	const struct kvr_path p = v4(a);

	return kvr_source_key(&p);
}

static uint64_t key6(uint64_t net, uint64_t host)
{
	const struct kvr_path p = v6(net, host);

	return kvr_source_key(&p);
}

static void ports_are_one_source_and_hosts_of_a_64_too(void)
{
	struct kvr_path a = v4(0x0a000001), b = v4(0x0a000001);

	b.udp_port = 2;
	CU_ASSERT_EQUAL(kvr_source_key(&a), kvr_source_key(&b));
	CU_ASSERT_NOT_EQUAL(key4(0x0a000001), key4(0x0a000002));
	CU_ASSERT_EQUAL(key6(0x20010db800000001, 1), key6(0x20010db800000001, 99));
	CU_ASSERT_NOT_EQUAL(key6(0x20010db800000001, 1), key6(0x20010db800000002, 1));
	CU_ASSERT_NOT_EQUAL(key6(UINT64_C(0xfe80) << 48, 1), key6(UINT64_C(0xfe80) << 48, 2));
	CU_ASSERT_NOT_EQUAL(key6(0, 1), 0);
}

static void bucket_gives_its_burst_then_its_rate(void)
{
	const struct kvr_source_rate r = kvr_source_rate(10, 3), none = kvr_source_rate(0, 3);
	struct kvr_source s = {0};
	uint64_t now = 5 * S;

	for (int i = 0; i < 3; i++)
		CU_ASSERT_TRUE(kvr_source_take(&s, KVR_SOURCE_REQUESTS, &r, now));
	CU_ASSERT_FALSE(kvr_source_take(&s, KVR_SOURCE_REQUESTS, &r, now));
	CU_ASSERT_TRUE(kvr_source_take(&s, KVR_SOURCE_ANSWERS, &r, now)); /* one of its own */
	now += S / 10;
	CU_ASSERT_TRUE(kvr_source_take(&s, KVR_SOURCE_REQUESTS, &r, now));
	CU_ASSERT_FALSE(kvr_source_take(&s, KVR_SOURCE_REQUESTS, &r, now));
	now += 100 * S; /* it fills to the burst, not above */
	for (int i = 0; i < 3; i++)
		CU_ASSERT_TRUE(kvr_source_take(&s, KVR_SOURCE_REQUESTS, &r, now));
	CU_ASSERT_FALSE(kvr_source_take(&s, KVR_SOURCE_REQUESTS, &r, now));
	CU_ASSERT_TRUE(kvr_source_take(&s, KVR_SOURCE_REQUESTS, &none, now));
}

static void forged_addresses_do_not_push_out_an_honest_one(void)
{
	struct kvr_source_table *t = kvr_source_create(64, 7);
	const uint64_t honest = key4(0x0a000001);
	struct kvr_source *s;
	uint64_t now = S;

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	s = kvr_source_get(t, honest, now);
	s->requests = 42;
	for (uint32_t i = 0; i < 100000; i++) {
		s = kvr_source_get(t, key4(0xc0000000u + i * 256), ++now);
		CU_ASSERT_NOT_EQUAL(s->key, honest);
	}
	s = kvr_source_get(t, honest, now);
	CU_ASSERT_EQUAL(s->key, honest);
	CU_ASSERT_EQUAL(s->requests, 42);
	CU_ASSERT_TRUE(kvr_source_shared(t) > 99000);
	CU_ASSERT_TRUE(kvr_source_used(t, now) <= 64);
	/* The flood has ended: its places are free again, and nothing is left of the old. */
	now += KVR_SOURCE_IDLE_NS;
	CU_ASSERT_EQUAL(kvr_source_used(t, now), 0);
	CU_ASSERT_PTR_NULL(kvr_source_find(t, honest, now));
	s = kvr_source_get(t, key4(0xdeadbeef), now);
	CU_ASSERT_EQUAL(s->key, key4(0xdeadbeef));
	CU_ASSERT_EQUAL(s->requests, 0);
	CU_ASSERT_PTR_EQUAL(kvr_source_find(t, key4(0xdeadbeef), now + 1), s);
	kvr_source_destroy(t);
}

static void sources_without_a_place_share_with_their_neighbours(void)
{
	struct kvr_source_table *t = kvr_source_create(8, 7);
	struct kvr_source *a, *b, *c;
	char text[KVR_SOURCE_TEXT];

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	/* One set: five hosts, then the shared entries take the rest. */
	for (uint32_t i = 0; i < 6; i++)
		kvr_source_get(t, key4(0x0a000000 + i), S);
	kvr_source_get(t, key6(0x20010db800000001, 1), S);
	kvr_source_get(t, key4(0x0b000000), S);
	a = kvr_source_get(t, key4(0x0c000001), S);
	CU_ASSERT_STRING_EQUAL(kvr_source_text(a->key, text, sizeof(text)), "others");
	/* One place becomes free: it is taken by a source of its own. */
	for (uint32_t i = 1; i < 6; i++)
		kvr_source_get(t, key4(0x0a000000 + i), 12 * S);
	kvr_source_get(t, key6(0x20010db800000001, 1), 12 * S);
	b = kvr_source_get(t, key4(0x0c000001), 12 * S);
	CU_ASSERT_STRING_EQUAL(kvr_source_text(b->key, text, sizeof(text)), "12.0.0.1");
	c = kvr_source_get(t, key4(0x0c000002), 12 * S);
	CU_ASSERT_STRING_EQUAL(kvr_source_text(c->key, text, sizeof(text)), "12.0.0.2");
	kvr_source_destroy(t);

	CU_ASSERT_STRING_EQUAL(kvr_source_text(key6(0x20010db800000001, 1), text, sizeof(text)),
			       "2001:db8:0:1::/64");
}

#define ALL KVR_SOURCE_ALL

/* @return how many of all draws let a request in. */
static uint64_t let_in(const struct kvr_source_table *t, const struct kvr_source *s, uint32_t part,
		       uint64_t now)
{
	uint64_t n = 0;

	for (uint32_t draw = 0; draw < ALL; draw++)
		n += kvr_source_within_quota(t, s, part, draw, now);
	return n;
}

static void who_has_more_than_others_is_turned_away(void)
{
	struct kvr_source_table *t = kvr_source_create(64, 7);
	struct kvr_source top[2], *flood, *steady;
	uint32_t at;
	uint64_t now = S;

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	flood = kvr_source_get(t, key4(1), now);
	steady = kvr_source_get(t, key4(2), now);
	/* Nobody has made any of late: a fragment that comes a window after its first. */
	CU_ASSERT_TRUE(kvr_source_within_quota(t, steady, ALL / 8, ALL - 1, now));
	for (int i = 0; i < 1000; i++)
		kvr_source_count(t, flood, now);
	for (int i = 0; i < 300; i++)
		kvr_source_count(t, steady, now);
	/* A part of 3/8 is more than the steady one has made; of the flood as much is let in. */
	CU_ASSERT_TRUE(kvr_source_within_quota(t, steady, 3 * ALL / 8, ALL - 1, now));
	CU_ASSERT_TRUE(kvr_source_within_quota(t, flood, 3 * ALL / 8, 3 * ALL / 8 - 1, now));
	CU_ASSERT_FALSE(kvr_source_within_quota(t, flood, 3 * ALL / 8, 3 * ALL / 8, now));
	/* Of 3/32 both get the same, which is 93 of 1,000 and of 300. */
	CU_ASSERT_EQUAL(let_in(t, flood, 3 * ALL / 32, now) * 1000 / ALL, 93);
	CU_ASSERT_EQUAL(let_in(t, steady, 3 * ALL / 32, now) * 300 / ALL, 93);
	CU_ASSERT_TRUE(kvr_source_within_quota(t, flood, ALL, ALL - 1, now));
	CU_ASSERT_FALSE(kvr_source_within_quota(t, steady, 0, 0, now));
	CU_ASSERT_EQUAL((at = 0, kvr_source_top(t, now, &at, top, 0, 2)), 2);
	CU_ASSERT_EQUAL(top[0].key, key4(1));
	CU_ASSERT_EQUAL(top[0].count, 1000);
	CU_ASSERT_EQUAL(top[1].count, 300);
	CU_ASSERT_EQUAL(at, UINT32_MAX);
	/* What was long ago is forgotten. */
	now += 20 * KVR_SOURCE_WINDOW_NS;
	kvr_source_count(t, steady, now);
	CU_ASSERT_FALSE(kvr_source_within_quota(t, steady, ALL / 2, ALL - 1, now));
	CU_ASSERT_TRUE(kvr_source_within_quota(t, flood, 1, ALL - 1, now));
	CU_ASSERT_EQUAL((at = 0, kvr_source_top(t, now, &at, top, 0, 1)), 1);
	CU_ASSERT_EQUAL(top[0].key, key4(2));
	kvr_source_destroy(t);
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
		{"key", ports_are_one_source_and_hosts_of_a_64_too},
		{"bucket", bucket_gives_its_burst_then_its_rate},
		{"forged", forged_addresses_do_not_push_out_an_honest_one},
		{"shared", sources_without_a_place_share_with_their_neighbours},
		{"busiest", who_has_more_than_others_is_turned_away},
		{"sizes", sizes_are_checked},
		CU_TEST_INFO_NULL,
	};
	return kvr_test_run("source", tests);
}
