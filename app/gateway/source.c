/* SPDX-License-Identifier: BSD-3-Clause */
#include "source.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <xxhash.h>

#define BUCKETS 4096u
#define IDLE	4096u	 /* addresses without connections that are kept */
#define BURST	1000000u /* us: the requests of one second may arrive at once */

struct gw_source {
	LIST_ENTRY(gw_source) chain;
	TAILQ_ENTRY(gw_source) idle; /* while is_idle() */
	uint8_t addr[8];
	uint8_t bytes;
	uint32_t connections;
	uint64_t paid_us; /* requests so far use the budget until this time */
	uint64_t held[GW_ROOMS];
};

struct gw_sources {
	uint32_t connections, rate, n_idle;
	uint64_t seed, held[GW_ROOMS];
	TAILQ_HEAD(gw_source_idle, gw_source) idle;
	LIST_HEAD(, gw_source) bucket[BUCKETS];
};

struct gw_sources *gw_sources_create(uint32_t connections, uint32_t rate, uint64_t seed)
{
	struct gw_sources *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->connections = connections;
	s->rate = rate;
	s->seed = seed;
	TAILQ_INIT(&s->idle);
	return s;
}

void gw_sources_destroy(struct gw_sources *s)
{
	struct gw_source *src;

	if (s == NULL)
		return;
	for (uint32_t i = 0; i < BUCKETS; i++)
		while ((src = LIST_FIRST(&s->bucket[i])) != NULL) {
			LIST_REMOVE(src, chain);
			free(src);
		}
	free(s);
}

/* Significant part of an address. @return its bytes. */
static uint8_t key_of(const struct sockaddr *from, uint8_t key[8])
{
	const struct sockaddr_in6 *v6 = (const void *)from;

	if (from->sa_family == AF_INET) {
		memcpy(key, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
		return 4;
	}
	if (from->sa_family != AF_INET6)
		return 0;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		memcpy(key, v6->sin6_addr.s6_addr + 12, 4);
		return 4;
	}
	memcpy(key, v6->sin6_addr.s6_addr, 8);
	return 8;
}

static bool is_idle(const struct gw_source *src)
{
	return src->connections == 0 && src->held[GW_BUDGET_CALLS] == 0 &&
	       src->held[GW_BUDGET_BODIES] == 0;
}

static void forget_source(struct gw_sources *s, struct gw_source *src)
{
	TAILQ_REMOVE(&s->idle, src, idle);
	s->n_idle--;
	LIST_REMOVE(src, chain);
	free(src);
}

struct gw_source *gw_source_open(struct gw_sources *s, const struct sockaddr *from)
{
	uint8_t key[8] = {0};
	const uint8_t n = key_of(from, key);
	const uint64_t at = XXH3_64bits_withSeed(key, sizeof(key), s->seed + n) % BUCKETS;
	struct gw_source *src;

	LIST_FOREACH (src, &s->bucket[at], chain)
		if (src->bytes == n && memcmp(src->addr, key, sizeof(key)) == 0)
			break;
	if (src == NULL) {
		src = calloc(1, sizeof(*src));
		if (src == NULL) {
			errno = ENOMEM;
			return NULL;
		}
		memcpy(src->addr, key, sizeof(key));
		src->bytes = n;
		LIST_INSERT_HEAD(&s->bucket[at], src, chain);
	} else if (is_idle(src)) {
		TAILQ_REMOVE(&s->idle, src, idle);
		s->n_idle--;
	} else if (src->connections >= s->connections) {
		errno = EBUSY;
		return NULL;
	}
	src->connections++;
	return src;
}

static void keep_idle(struct gw_sources *s, struct gw_source *src)
{
	if (!is_idle(src))
		return;
	TAILQ_INSERT_HEAD(&s->idle, src, idle);
	if (++s->n_idle > IDLE)
		forget_source(s, TAILQ_LAST(&s->idle, gw_source_idle));
}

void gw_source_close(struct gw_sources *s, struct gw_source *src)
{
	src->connections--;
	keep_idle(s, src);
}

void gw_source_hold(struct gw_sources *s, struct gw_source *src, enum gw_room room, int64_t bytes)
{
	if (bytes == 0)
		return;
	if (is_idle(src)) {
		TAILQ_REMOVE(&s->idle, src, idle);
		s->n_idle--;
	}
	src->held[room] += (uint64_t)bytes;
	s->held[room] += (uint64_t)bytes;
	keep_idle(s, src);
}

uint64_t gw_source_name(const struct gw_source *src)
{
	return XXH3_64bits_withSeed(src->addr, src->bytes, src->bytes);
}

uint64_t gw_source_held(const struct gw_sources *s, const struct gw_source *src, enum gw_room room)
{
	return src != NULL ? src->held[room] : s->held[room];
}

bool gw_source_fits(const struct gw_sources *s, const struct gw_source *src, enum gw_room room,
		    uint64_t bytes, uint64_t most, uint32_t times)
{
	const uint64_t all = s->held[room] + bytes;

	return all <= most && src->held[room] + bytes <= times * (most - all);
}

uint32_t gw_source_ask(struct gw_sources *s, struct gw_source *src, uint64_t now_ms)
{
	const uint64_t now = now_ms * 1000;
	const uint64_t cost = s->rate != 0 ? BURST / s->rate : 0;
	uint64_t paid = src->paid_us > now ? src->paid_us : now;

	if (s->rate == 0)
		return 0;
	if (paid > now + BURST) /* the clock was set back: limit the debt */
		paid = now;
	paid += cost > 0 ? cost : 1;
	if (paid > now + BURST)
		return (uint32_t)((paid - now - BURST + 999999) / 1000000);
	src->paid_us = paid;
	return 0;
}
