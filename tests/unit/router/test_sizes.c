/* SPDX-License-Identifier: BSD-3-Clause */
/* Packet buffers: who may hold how many, whatever is configured. */
#include "config/sizes.h"
#include "kvr_frame.h"
#include "kvr_rand.h"
#include "kvr_test.h"

#include <errno.h>
#include <string.h>

#define BUFFER 2368u /* of a port with 1,500 byte packets */

/* The shipped default: one memif port, one pool, one lcore. */
static struct sizes_in make_defaults(void)
{
	return (struct sizes_in){.device = {3200},
				 .buffer = {BUFFER},
				 .port = {"memif0"},
				 .n_ports = 1,
				 .n_ingress = 1,
				 .n_pools = 1,
				 .rings = 4,
				 .max_frame = 1452,
				 .memory_mb = 768};
}

/* All that may be held at the same time, on each port. */
static void check_sum(const struct sizes_in *in, const struct sizes *s)
{
	const uint64_t sum = s->reserve + (uint64_t)in->rings * s->ring_size +
			     (uint64_t)in->n_ingress * (s->egress_size - s->ring_size) +
			     (uint64_t)in->joins * (s->joins_size - s->ring_size) + s->reassembly +
			     s->waiting;

	for (uint32_t i = 0; i < in->n_ports; i++) {
		CU_ASSERT(in->device[i] + sum <= s->mbufs[i]);
		if (in->mbufs[i] != 0)
			CU_ASSERT_EQUAL(s->mbufs[i], in->mbufs[i]);
	}
	CU_ASSERT(s->reassembly_lcore * in->n_ingress <= s->reassembly);
	CU_ASSERT(s->reassembly_source <= s->reassembly_lcore);
	CU_ASSERT(s->waiting_pool * in->n_pools <= s->waiting);
	CU_ASSERT(2 * s->max_frames <= s->reassembly_source);
	CU_ASSERT(2 * s->max_frames <= s->waiting_pool);
	CU_ASSERT(s->egress_size >= s->ring_size && s->joins_size >= s->ring_size);
	CU_ASSERT(in->joins == 0 || s->joins_size > s->max_frames);
	CU_ASSERT(in->apart == 0 || s->egress_size > s->max_frames);
	CU_ASSERT(s->low_water > 0 && s->low_water <= s->reserve);
	CU_ASSERT(s->max_message <= (uint64_t)s->max_frames * (in->max_frame - 48));
	CU_ASSERT(s->max_message <= KVR_WIRE_MAX_MESSAGE);
}

static void the_default_takes_the_prompts_that_matter(void)
{
	struct sizes_in in = make_defaults();
	struct sizes s;
	char err[400];

	CU_ASSERT_EQUAL_FATAL(sizes_derive(&in, &s, err, sizeof(err)), 0);
	check_sum(&in, &s);
	CU_ASSERT_EQUAL(s.ring_size, 4096);
	/* In frames of 1,432 bytes: hashes of 1,048,576 tokens, and 200,000 tokens, with hints. */
	CU_ASSERT((uint64_t)s.max_frames * 1384 >= 88 + 65536 * 8 + 65536);
	CU_ASSERT((uint64_t)s.max_frames * 1384 >= 88 + 200000 * 4 + 65536);
	/* A pair of pools and four polling lcores, too. */
	in.n_pools = 2;
	in.rings = 6;
	CU_ASSERT_EQUAL_FATAL(sizes_derive(&in, &s, err, sizeof(err)), 0);
	CU_ASSERT((uint64_t)s.max_frames * 1384 >= 88 + 200000 * 4 + 65536);
	in.n_ingress = 4;
	in.rings = 9;
	in.device[0] = 12000;
	in.memory_mb = 1536;
	CU_ASSERT_EQUAL_FATAL(sizes_derive(&in, &s, err, sizeof(err)), 0);
	CU_ASSERT((uint64_t)s.max_frames * 1384 >= 88 + 200000 * 4 + 65536);
}

static void memory_is_what_larger_messages_need(void)
{
	struct sizes_in in = make_defaults();
	struct sizes s;
	char err[400];

	in.memory_mb = 1280; /* as README says */
	CU_ASSERT_EQUAL_FATAL(sizes_derive(&in, &s, err, sizeof(err)), 0);
	CU_ASSERT((uint64_t)s.max_frames * 1384 >= KVR_WIRE_MAX_MESSAGE);
	CU_ASSERT_EQUAL(s.max_message, KVR_WIRE_MAX_MESSAGE);
	in.memory_mb = 64;
	CU_ASSERT_EQUAL_FATAL(sizes_derive(&in, &s, err, sizeof(err)), 0);
	check_sum(&in, &s);
	CU_ASSERT(s.max_frames < 200);
}

static void configured_sizes_are_kept_and_the_rest_follows(void)
{
	struct sizes_in in = make_defaults();
	struct sizes s, again;
	char err[400];

	in.ring_size = 1000;
	in.reassembly_frames = 3000;
	in.reassembly_source_frames = 100;
	in.waiting_frames = 2000;
	CU_ASSERT_EQUAL_FATAL(sizes_derive(&in, &s, err, sizeof(err)), 0);
	check_sum(&in, &s);
	CU_ASSERT_EQUAL(s.ring_size, 1024);
	CU_ASSERT_EQUAL(s.reassembly, 3000);
	CU_ASSERT_EQUAL(s.reassembly_source, 100);
	CU_ASSERT_EQUAL(s.waiting, 2000);
	CU_ASSERT_EQUAL(s.max_frames, 50);
	CU_ASSERT_EQUAL(s.max_message, 50 * 1400);
	CU_ASSERT_EQUAL(s.mbufs[0], 3200 + s.reserve + 4 * 1024 + 3000 + 2000);
	/* Given as many buffers as were derived, the same follows. */
	in = make_defaults();
	CU_ASSERT_EQUAL_FATAL(sizes_derive(&in, &s, err, sizeof(err)), 0);
	in.mbufs[0] = s.mbufs[0];
	CU_ASSERT_EQUAL_FATAL(sizes_derive(&in, &again, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL(memcmp(&s, &again, sizeof(s)), 0);
}

static void contradictions_are_refused_with_their_keys(void)
{
	struct sizes_in in = make_defaults();
	struct sizes s;
	char err[400];

	in.mbufs[0] = 20000;
	in.ring_size = 8192;
	CU_ASSERT_EQUAL(sizes_derive(&in, &s, err, sizeof(err)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "[port memif0] mbufs = 20000"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "ring_size 8192"));
	CU_ASSERT_PTR_NULL(strchr(err, '\n'));
	in = make_defaults();
	in.mbufs[0] = 3000; /* less than the device */
	CU_ASSERT_EQUAL(sizes_derive(&in, &s, err, sizeof(err)), -EINVAL);
	in = make_defaults();
	in.ring_size = 1 << 20;
	CU_ASSERT_EQUAL(sizes_derive(&in, &s, err, sizeof(err)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "memory_mb = 768"));
	in = make_defaults();
	in.reassembly_frames = 1000;
	in.reassembly_source_frames = 1001;
	CU_ASSERT_EQUAL(sizes_derive(&in, &s, err, sizeof(err)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "reassembly_source_frames = 1001"));
	in = make_defaults();
	in.waiting_frames = 20; /* no message of 16 frames fits twice */
	CU_ASSERT_EQUAL(sizes_derive(&in, &s, err, sizeof(err)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "waiting_frames 20"));
}

/* Whatever is accepted fits, and is used. */
static void any_configuration_fits_or_is_refused(void)
{
	uint32_t fine = 0, refused = 0;
	struct kvr_rand r;

	kvr_rand_init(&r, 7);
	for (uint32_t i = 0; i < 100000; i++) {
		struct sizes_in in = make_defaults();
		struct sizes s;
		char err[400] = "";

		in.n_ports = 1 + kvr_rand_below(&r, SIZES_PORTS);
		in.n_ingress = 1 + kvr_rand_below(&r, 16);
		in.n_pools = 1 + kvr_rand_below(&r, 16);
		in.apart = kvr_rand_below(&r, 2);
		in.joins = in.n_ingress > 1 ? in.n_ingress : 0;
		in.rings = 2 * in.n_pools + in.n_ingress + 1 + in.joins;
		in.memory_mb = 64 + kvr_rand_below(&r, 16384);
		in.max_frame = 1232 + kvr_rand_below(&r, 7720);
		for (uint32_t p = 0; p < in.n_ports; p++) {
			in.device[p] = kvr_rand_below(&r, 50000);
			in.buffer[p] = BUFFER + kvr_rand_below(&r, 8000);
			in.port[p] = "p";
			in.mbufs[p] = kvr_rand_below(&r, 2) ? kvr_rand_below(&r, 200000) : 0;
		}
		in.ring_size = kvr_rand_below(&r, 2) ? kvr_rand_below(&r, 20000) : 0;
		in.reassembly_frames = kvr_rand_below(&r, 2) ? kvr_rand_below(&r, 50000) : 0;
		in.waiting_frames = kvr_rand_below(&r, 2) ? kvr_rand_below(&r, 50000) : 0;
		if (sizes_derive(&in, &s, err, sizeof(err)) == 0) {
			check_sum(&in, &s);
			fine++;
		} else {
			CU_ASSERT(err[0] != '\0' && strchr(err, '\n') == NULL);
			refused++;
		}
	}
	CU_ASSERT(fine > 5000 && refused > 5000);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(the_default_takes_the_prompts_that_matter),
			       KVR_CASE(memory_is_what_larger_messages_need),
			       KVR_CASE(configured_sizes_are_kept_and_the_rest_follows),
			       KVR_CASE(contradictions_are_refused_with_their_keys),
			       KVR_CASE(any_configuration_fits_or_is_refused),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("sizes", tests);
}
