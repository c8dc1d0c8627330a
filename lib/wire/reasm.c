/* SPDX-License-Identifier: BSD-3-Clause */
#include "reasm_pvt.h"

#include "kvr_errno.h"
#include "kvr_sim.h"

#include <stdlib.h>

#define DEF_MESSAGES	  1024u
#define DEF_FRAMES	  65536u
#define DEF_BYTES	  (UINT64_C(256) << 20)
#define DEF_PEER_MESSAGES 256u
#define LIMIT_MESSAGES	  (1u << 24)
#define LIMIT_FRAMES	  (1u << 26)

static uint32_t min_u32(uint32_t a, uint64_t b)
{
	return a < b ? a : (uint32_t)b;
}

/* Fill in defaults. @return false if limits contradict. */
static bool complete_conf(struct kvr_reasm_conf *c)
{
	if (c->timeout == 0 || c->drop == NULL)
		return false;
	if (c->max_messages == 0)
		c->max_messages = DEF_MESSAGES;
	if (c->max_frames == 0)
		c->max_frames = DEF_FRAMES;
	if (c->max_bytes == 0)
		c->max_bytes = DEF_BYTES;
	if (c->peer_max_messages == 0)
		c->peer_max_messages = min_u32(DEF_PEER_MESSAGES, c->max_messages);
	if (c->peer_max_frames == 0)
		c->peer_max_frames = min_u32(c->max_frames, KVR_WIRE_MAX_FRAGMENTS);
	if (c->msg_max_frames == 0)
		c->msg_max_frames = KVR_WIRE_MAX_FRAGMENTS;
	if (c->quiet == 0)
		c->quiet = UINT64_MAX;
	if (c->peer_max_bytes == 0)
		c->peer_max_bytes = c->max_bytes < 4 * KVR_WIRE_MAX_MESSAGE
					    ? c->max_bytes
					    : 4 * KVR_WIRE_MAX_MESSAGE;
	return (c->remember & (c->remember - 1)) == 0 && c->remember <= LIMIT_MESSAGES &&
	       c->max_messages <= LIMIT_MESSAGES && c->max_frames <= LIMIT_FRAMES &&
	       c->max_frames >= 2 && c->peer_max_messages <= c->max_messages &&
	       c->peer_max_frames <= c->max_frames && c->peer_max_bytes <= c->max_bytes;
}

/* Dense messages need one page in 64 frames, each message one more; sparse ones are bounded. */
static uint32_t page_count(uint32_t frames, uint32_t messages)
{
	return frames / (PAGE_SLOTS / 4) + messages + 2;
}

static uint32_t bucket_count(uint32_t messages)
{
	uint32_t n = 2;

	while (n < 2 * messages)
		n *= 2;
	return n;
}

size_t kvr_reasm_footprint(const struct kvr_reasm_conf *conf)
{
	struct kvr_reasm_conf c = *conf;

	if (!complete_conf(&c))
		return 0;
	return sizeof(struct kvr_reasm) +
	       (size_t)bucket_count(c.max_messages) * 2 * sizeof(uint32_t) +
	       (size_t)c.max_messages * (sizeof(struct reasm_entry) + sizeof(struct reasm_peer)) +
	       (size_t)page_count(c.max_frames, c.max_messages) * sizeof(struct reasm_page) +
	       (size_t)c.remember * sizeof(struct reasm_done) +
	       (size_t)c.msg_max_frames * sizeof(struct kvr_reasm_frag);
}

static void empty_lists(struct kvr_reasm *r)
{
	r->oldest = NONE;
	r->youngest = NONE;
	r->dead_page = NONE;
	r->may_free = UINT32_MAX;
	for (uint32_t i = 0; i < QUIET_LISTS; i++)
		r->quiet[i] = (struct reasm_list){NONE, NONE};
}

/* One write per page. (Compilers turn malloc() and memset() to 0 into calloc().) */
static void touch_memory(void *p, size_t len)
{
	for (size_t i = 0; i < len; i += 4096)
		*((volatile char *)p + i) = 0;
}

static void touch_all(struct kvr_reasm *r)
{
	const struct kvr_reasm_conf *c = &r->conf;

	touch_memory(r->entries, c->max_messages * sizeof(*r->entries));
	touch_memory(r->peers, c->max_messages * sizeof(*r->peers));
	touch_memory(r->pages, r->n_pages * sizeof(*r->pages));
	touch_memory(r->done, c->msg_max_frames * sizeof(*r->done));
	touch_memory(r->lately, (c->remember + (size_t)1) * sizeof(*r->lately));
}

struct kvr_reasm *kvr_reasm_create(const struct kvr_reasm_conf *conf)
{
	struct kvr_reasm_conf c = *conf;
	uint32_t n_buckets;
	struct kvr_reasm *r;

	if (!complete_conf(&c))
		return kvr_null(EINVAL);
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return kvr_null(ENOMEM);
	n_buckets = bucket_count(c.max_messages);
	r->n_pages = page_count(c.max_frames, c.max_messages);
	r->conf = c;
	r->mask = n_buckets - 1;
	r->peer_max_pages = page_count(c.peer_max_frames, c.peer_max_messages);
	r->buckets = malloc(n_buckets * sizeof(*r->buckets));
	r->peer_buckets = malloc(n_buckets * sizeof(*r->peer_buckets));
	r->entries = malloc(c.max_messages * sizeof(*r->entries)); /* written when first taken */
	r->peers = malloc(c.max_messages * sizeof(*r->peers));
	r->pages = malloc(r->n_pages * sizeof(*r->pages));
	r->done = malloc(c.msg_max_frames * sizeof(*r->done));
	r->lately = calloc(c.remember + 1u, sizeof(*r->lately));
	if (r->buckets == NULL || r->peer_buckets == NULL || r->entries == NULL ||
	    r->peers == NULL || r->pages == NULL || r->done == NULL || r->lately == NULL)
		goto err_memory;
	memset(r->buckets, 0xff, n_buckets * sizeof(*r->buckets));
	memset(r->peer_buckets, 0xff, n_buckets * sizeof(*r->peer_buckets));
	if (c.resident)
		touch_all(r);
	empty_lists(r);
	return r;

err_memory:
	r->oldest = r->dead_page = NONE;
	kvr_reasm_destroy(r);
	return kvr_null(ENOMEM);
}

uint32_t kvr_reasm_flush(struct kvr_reasm *r)
{
	uint32_t n = 0;

	for (; r->oldest != NONE; n++)
		kvr_reasm__drop(r, r->oldest);
	kvr_cell_add(&r->stats.flushed, n);
	r->may_free = UINT32_MAX;
	kvr_reasm__free(r, UINT32_MAX);
	return n;
}

/* An expired entry, or NONE. A copy of a fragment moves its entry to the end of the list, but does
 * not extend its time: such an entry is found after it has been asked for. */
static uint32_t find_overdue(const struct kvr_reasm *r, uint64_t now)
{
	for (uint32_t k = 0; k < QUIET_LISTS; k++) {
		const uint32_t i = r->quiet[k].first;

		if (i != NONE && now - r->entries[i].progress >= r->conf.timeout)
			return i;
	}
	return NONE;
}

uint32_t kvr_reasm_expire(struct kvr_reasm *r, uint64_t now, uint32_t max)
{
	uint32_t n = 0, i;

	for (; n < max && (i = find_overdue(r, now)) != NONE; n++) {
		KVR_SIM_SOMETIMES(REASM_EXPIRED);
		kvr_reasm__drop(r, i);
	}
	kvr_cell_add(&r->stats.expired, n);
	kvr_reasm__free(r, UINT32_MAX);
	return n;
}

uint32_t kvr_reasm_evict(struct kvr_reasm *r, uint32_t max)
{
	uint32_t n = 0;

	if (r->dead_page == NONE)
		for (; n < max && r->oldest != NONE; n++)
			kvr_reasm__drop(r, r->oldest);
	kvr_cell_add(&r->stats.evicted, n);
	kvr_reasm__free(r, UINT32_MAX);
	return n;
}

void kvr_reasm_allow(struct kvr_reasm *r, uint32_t frames)
{
	r->may_free = frames;
}

void kvr_reasm_destroy(struct kvr_reasm *r)
{
	if (r == NULL)
		return;
	kvr_reasm_flush(r);
	free(r->buckets);
	free(r->peer_buckets);
	free(r->entries);
	free(r->peers);
	free(r->pages);
	free(r->done);
	free(r->lately);
	free(r);
}

#define C(name) KVR_REASM_C_##name
static const struct kvr_counter counters[] = {KVR_REASM_COUNTER_LIST(KVR_COUNTER_ROW)
						      KVR_COUNTER_END};
static const struct kvr_equation equations[] = {
	{KVR_TERMS(C(FRAGMENTS)), KVR_TERMS(C(ACCEPTED), C(DUPLICATES), C(REFUSED_FRAGMENT),
					    C(REFUSED_FULL), C(REFUSED_LARGE))},
	{KVR_TERMS(C(ACCEPTED)), KVR_TERMS(C(DELIVERED), C(DROPPED), C(FRAMES))},
	{KVR_TERMS(C(STARTED)),
	 KVR_TERMS(C(COMPLETED), C(EXPIRED), C(EVICTED), C(FLUSHED), C(MESSAGES))},
	{0},
};
const struct kvr_stats_def kvr_reasm_stats_def = {"reasm", counters, equations};

const struct kvr_reasm_stats *kvr_reasm_stats(const struct kvr_reasm *r)
{
	return &r->stats;
}
