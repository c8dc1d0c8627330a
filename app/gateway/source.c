/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits per client address: a hash table with random seed, and a list of idle addresses. */
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
	struct gw_sources *sources = calloc(1, sizeof(*sources));

	if (sources == NULL)
		return NULL;
	sources->connections = connections;
	sources->rate = rate;
	sources->seed = seed;
	TAILQ_INIT(&sources->idle);
	return sources;
}

void gw_sources_destroy(struct gw_sources *sources)
{
	struct gw_source *source;

	if (sources == NULL)
		return;
	for (uint32_t i = 0; i < BUCKETS; i++)
		while ((source = LIST_FIRST(&sources->bucket[i])) != NULL) {
			LIST_REMOVE(source, chain);
			free(source);
		}
	free(sources);
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

static bool is_idle(const struct gw_source *source)
{
	return source->connections == 0 && source->held[GW_BUDGET_CALLS] == 0 &&
	       source->held[GW_BUDGET_BODIES] == 0;
}

static void forget_source(struct gw_sources *sources, struct gw_source *source)
{
	TAILQ_REMOVE(&sources->idle, source, idle);
	sources->n_idle--;
	LIST_REMOVE(source, chain);
	free(source);
}

struct gw_source *gw_source_open(struct gw_sources *sources, const struct sockaddr *from)
{
	uint8_t key[8] = {0};
	const uint8_t n = key_of(from, key);
	const uint64_t at = XXH3_64bits_withSeed(key, sizeof(key), sources->seed + n) % BUCKETS;
	struct gw_source *source;

	LIST_FOREACH (source, &sources->bucket[at], chain)
		if (source->bytes == n && memcmp(source->addr, key, sizeof(key)) == 0)
			break;
	if (source == NULL) {
		source = calloc(1, sizeof(*source));
		if (source == NULL) {
			errno = ENOMEM;
			return NULL;
		}
		memcpy(source->addr, key, sizeof(key));
		source->bytes = n;
		LIST_INSERT_HEAD(&sources->bucket[at], source, chain);
	} else if (is_idle(source)) {
		TAILQ_REMOVE(&sources->idle, source, idle);
		sources->n_idle--;
	} else if (source->connections >= sources->connections) {
		errno = EBUSY;
		return NULL;
	}
	source->connections++;
	return source;
}

static void keep_idle(struct gw_sources *sources, struct gw_source *source)
{
	if (!is_idle(source))
		return;
	TAILQ_INSERT_HEAD(&sources->idle, source, idle);
	if (++sources->n_idle > IDLE)
		forget_source(sources, TAILQ_LAST(&sources->idle, gw_source_idle));
}

void gw_source_close(struct gw_sources *sources, struct gw_source *source)
{
	source->connections--;
	keep_idle(sources, source);
}

void gw_source_hold(struct gw_sources *sources, struct gw_source *source, enum gw_room room,
		    int64_t bytes)
{
	if (bytes == 0)
		return;
	if (is_idle(source)) {
		TAILQ_REMOVE(&sources->idle, source, idle);
		sources->n_idle--;
	}
	source->held[room] += (uint64_t)bytes;
	sources->held[room] += (uint64_t)bytes;
	keep_idle(sources, source);
}

uint64_t gw_source_name(const struct gw_source *source)
{
	return XXH3_64bits_withSeed(source->addr, source->bytes, source->bytes);
}

uint64_t gw_source_held(const struct gw_sources *sources, const struct gw_source *source,
			enum gw_room room)
{
	return source != NULL ? source->held[room] : sources->held[room];
}

bool gw_source_fits(const struct gw_sources *sources, const struct gw_source *source,
		    enum gw_room room, uint64_t bytes, uint64_t most, uint32_t times)
{
	const uint64_t all = sources->held[room] + bytes;

	return all <= most && source->held[room] + bytes <= times * (most - all);
}

uint32_t gw_source_ask(struct gw_sources *sources, struct gw_source *source, uint64_t now_ms)
{
	const uint64_t now = now_ms * 1000;
	const uint64_t cost = sources->rate != 0 ? BURST / sources->rate : 0;
	uint64_t paid = source->paid_us > now ? source->paid_us : now;

	if (sources->rate == 0)
		return 0;
	if (paid > now + BURST) /* the clock was set back: limit the debt */
		paid = now;
	paid += cost > 0 ? cost : 1;
	if (paid > now + BURST)
		return (uint32_t)((paid - now - BURST + 999999) / 1000000);
	source->paid_us = paid;
	return 0;
}
