/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The registry and its views, on the control thread. Workers are in an array in order of joining
 * and found by a linear search, as only control searches here; packet lcores use the hashed index
 * of a view (worker_dp.c).
 */

#include "kvr_worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "kvr_errno.h"
#include "kvr_rand.h"

#define TOMB_WAYS 8u

struct tomb {
	uint64_t id;
	uint32_t epoch; /* 0: free */
	uint32_t age;	/* number of the removal: the lowest is the oldest; wraps */
};

struct kvr_registry {
	uint32_t max;
	uint32_t n;
	uint64_t seed;
	struct kvr_worker **worker; /* in order of joining */
	uint32_t tomb_mask;	    /* mask of rows of TOMB_WAYS */
	uint32_t deaths;
	uint64_t views; /* views built */
	struct tomb *tomb;
};

static const char *const state_names[] = {
	[KVR_WORKER_JOINING] = "joining", [KVR_WORKER_SERVING] = "serving",
	[KVR_WORKER_SUSPECT] = "suspect", [KVR_WORKER_DRAINING] = "draining",
	[KVR_WORKER_DRAINED] = "drained", [KVR_WORKER_GONE] = "gone",
};

/* Allowed targets of each state, as a bit set; see the diagram in the header. */
#define TO(s) (1u << KVR_WORKER_##s)
static const uint32_t transitions[] = {
	[KVR_WORKER_JOINING] = TO(SERVING) | TO(GONE),
	[KVR_WORKER_SERVING] = TO(SUSPECT) | TO(DRAINING) | TO(GONE),
	[KVR_WORKER_SUSPECT] = TO(SERVING) | TO(DRAINING) | TO(GONE),
	[KVR_WORKER_DRAINING] = TO(DRAINED) | TO(SERVING) | TO(GONE),
	[KVR_WORKER_DRAINED] = TO(SERVING) | TO(GONE),
	[KVR_WORKER_GONE] = 0,
};
#undef TO

struct kvr_registry *kvr_registry_create(uint32_t max_workers, uint64_t seed)
{
	struct kvr_registry *registry;

	if (max_workers == 0 || max_workers > (1u << 20))
		return kvr_null(EINVAL);
	registry = calloc(1, sizeof(*registry));
	if (registry == NULL)
		return NULL;
	registry->max = max_workers;
	registry->seed = seed;
	/* Four tombstones per live worker. */
	while ((registry->tomb_mask + 1) * TOMB_WAYS < 4 * max_workers)
		registry->tomb_mask = 2 * registry->tomb_mask + 1;
	registry->worker = calloc(max_workers, sizeof(*registry->worker));
	registry->tomb = calloc((registry->tomb_mask + 1) * TOMB_WAYS, sizeof(*registry->tomb));
	if (registry->worker == NULL || registry->tomb == NULL) {
		kvr_registry_destroy(registry);
		return kvr_null(ENOMEM);
	}
	return registry;
}

static struct tomb *tomb_row(const struct kvr_registry *registry, uint64_t id)
{
	return &registry->tomb[((uint32_t)kvr_mix64(id ^ ~registry->seed) & registry->tomb_mask) *
			       TOMB_WAYS];
}

/* Store a tombstone in the place of the same worker, else in a free one, else over the oldest. */
static void add_tomb(struct kvr_registry *registry, uint64_t id, uint32_t epoch)
{
	struct tomb *row = tomb_row(registry, id), *best = &row[0];

	for (uint32_t i = 0; i < TOMB_WAYS; i++) {
		struct tomb *tomb = &row[i];

		if (tomb->epoch != 0 && tomb->id == id) {
			best = tomb;
			break;
		}
		if (best->epoch != 0 && (tomb->epoch == 0 || (int32_t)(tomb->age - best->age) < 0))
			best = tomb;
	}
	*best = (struct tomb){id, epoch, registry->deaths++};
}

uint32_t kvr_registry_last_epoch(const struct kvr_registry *registry, uint64_t id)
{
	const struct tomb *row = tomb_row(registry, id);

	for (uint32_t i = 0; i < TOMB_WAYS; i++)
		if (row[i].epoch != 0 && row[i].id == id)
			return row[i].epoch;
	return 0;
}

/* ---- beats ---- */

int kvr_worker_create_beat(struct kvr_worker *worker)
{
	const size_t bytes =
		sizeof(*worker->beat) + worker->dp_size * sizeof(worker->beat->load[0]);
	struct kvr_beat *beat = aligned_alloc(RTE_CACHE_LINE_SIZE,
					      RTE_ALIGN_CEIL(bytes, (size_t)RTE_CACHE_LINE_SIZE));

	if (beat == NULL)
		return -ENOMEM;
	memset(beat, 0, bytes);
	beat->refs = 1;
	beat->n = worker->dp_size;
	worker->beat = beat;
	return 0;
}

static void release_beat(struct kvr_beat *beat)
{
	if (beat != NULL && --beat->refs == 0)
		free(beat);
}

/* ---- workers ---- */

#define HOP_MAC_BITS 48

uint64_t kvr_beat_hop(const struct kvr_path *from)
{
	uint64_t mac = 0;

	memcpy(&mac, from->mac, sizeof(from->mac));
	return mac | (uint64_t)(kvr_path_hash(from, 0) | 1u) << HOP_MAC_BITS;
}

bool kvr_worker_adopt_hop(struct kvr_worker *worker)
{
	uint64_t hop;

	/* One word, which publishes nothing; usually 0. */
	if (atomic_load_explicit(&worker->beat->hop, memory_order_relaxed) == 0)
		return false;
	hop = atomic_exchange_explicit(&worker->beat->hop, 0, memory_order_relaxed);
	if ((hop ^ kvr_beat_hop(&worker->path)) >> HOP_MAC_BITS != 0 ||
	    memcmp(worker->path.mac, &hop, sizeof(worker->path.mac)) == 0)
		return false;
	memcpy(worker->path.mac, &hop, sizeof(worker->path.mac));
	worker->moved = true;
	return true;
}

void kvr_registry_destroy(struct kvr_registry *registry)
{
	if (registry == NULL)
		return;
	for (uint32_t i = 0; i < registry->n; i++)
		kvr_worker_free(registry->worker[i]);
	free(registry->tomb);
	free(registry->worker);
	free(registry);
}

struct kvr_worker *kvr_registry_find(struct kvr_registry *registry, uint64_t id)
{
	for (uint32_t i = 0; i < registry->n; i++)
		if (registry->worker[i]->id == id)
			return registry->worker[i];
	return NULL;
}

struct kvr_worker *kvr_registry_add(struct kvr_registry *registry, uint64_t id, uint64_t now_ns)
{
	struct kvr_worker *worker;

	if (kvr_registry_find(registry, id) != NULL)
		return kvr_null(EEXIST);
	if (registry->n == registry->max)
		return kvr_null(ENOSPC);
	worker = calloc(1, sizeof(*worker));
	if (worker == NULL)
		return NULL;
	worker->id = id;
	worker->state = KVR_WORKER_JOINING;
	worker->last_seen_ns = now_ns;
	worker->since_ns = now_ns;
	memset(worker->rank, 0xff, sizeof(worker->rank)); /* KVR_RANK_NONE */
	registry->worker[registry->n++] = worker;
	return worker;
}

void kvr_worker_free(struct kvr_worker *worker)
{
	release_beat(worker->beat);
	free(worker);
}

void kvr_registry_del(struct kvr_registry *registry, struct kvr_worker *worker)
{
	kvr_registry_remove(registry, worker);
	kvr_worker_free(worker);
}

void kvr_registry_remove(struct kvr_registry *registry, struct kvr_worker *worker)
{
	uint32_t i;

	for (i = 0; i < registry->n && registry->worker[i] != worker; i++)
		;
	if (i == registry->n)
		return;
	if (worker->epoch != 0)
		add_tomb(registry, worker->id, worker->epoch);
	memmove(&registry->worker[i], &registry->worker[i + 1],
		(registry->n - i - 1) * sizeof(*registry->worker));
	registry->n--;
}

uint32_t kvr_registry_count(const struct kvr_registry *registry)
{
	return registry->n;
}

struct kvr_worker *kvr_registry_at(struct kvr_registry *registry, uint32_t i)
{
	return registry->worker[i];
}

bool kvr_worker_may_change(enum kvr_wire_worker_state from, enum kvr_wire_worker_state to)
{
	if ((unsigned int)from >= RTE_DIM(transitions) || (unsigned int)to >= RTE_DIM(transitions))
		return false;
	return (transitions[from] >> to & 1) != 0;
}

int kvr_worker_set_state(struct kvr_worker *worker, enum kvr_wire_worker_state to, uint64_t now_ns)
{
	if (worker->state == to)
		return -EALREADY;
	if (!kvr_worker_may_change(worker->state, to))
		return -EPERM;
	worker->state = to;
	worker->since_ns = now_ns;
	if (worker->beat != NULL) /* publishes nothing */
		atomic_store_explicit(&worker->beat->state, to, memory_order_relaxed);
	return 0;
}

bool kvr_worker_is_loss(const struct kvr_worker *worker, enum kvr_wire_worker_state from,
			enum kvr_wire_worker_state to, bool silent)
{
	const bool drained = from == KVR_WORKER_DRAINED || from == KVR_WORKER_DRAINING;

	return to == KVR_WORKER_SUSPECT ||
	       (to == KVR_WORKER_GONE && (silent || !drained || worker->bookings > 0));
}

const char *kvr_worker_state_name(enum kvr_wire_worker_state s)
{
	if ((unsigned int)s >= RTE_DIM(state_names) || state_names[s] == NULL)
		return "unknown";
	return state_names[s];
}

static void index_add(struct kvr_view *view, uint32_t number)
{
	uint32_t at = (uint32_t)kvr_mix64(view->worker[number].id ^ view->seed) & view->mask;

	while (view->index[at] != 0)
		at = (at + 1) & view->mask;
	view->index[at] = number + 1;
}

struct kvr_view *kvr_view_build(struct kvr_registry *registry)
{
	struct kvr_view *view = calloc(1, sizeof(*view));
	uint32_t ranks = 0, size = 2, prefill = 0;

	if (view == NULL)
		return NULL;
	for (uint32_t i = 0; i < registry->n; i++) {
		ranks += registry->worker[i]->dp_size;
		prefill += registry->worker[i]->role == KVR_ROLE_PREFILL;
	}
	while (size < 2 * registry->n)
		size *= 2;
	view->n = registry->n;
	view->mask = size - 1;
	view->seed = registry->seed;
	view->index = calloc(size, sizeof(*view->index));
	view->rank = calloc(ranks + 1, sizeof(*view->rank));
	view->worker = calloc(registry->n + 1, sizeof(*view->worker));
	view->transfer = calloc(prefill + 1, sizeof(*view->transfer));
	view->addr = calloc(registry->n + 1, sizeof(*view->addr));
	if (view->index == NULL || view->rank == NULL || view->worker == NULL ||
	    view->transfer == NULL || view->addr == NULL) {
		kvr_view_free(view);
		return kvr_null(ENOMEM);
	}
	view->number = ++registry->views;
	ranks = prefill = 0;
	for (uint32_t i = 0; i < registry->n; i++) {
		const struct kvr_worker *worker = registry->worker[i];

		view->worker[i] = (struct kvr_view_worker){
			.id = worker->id,
			.epoch = worker->epoch,
			.pool = (uint16_t)worker->pool,
			.state = (uint16_t)worker->state,
			.dp_start = worker->dp_start,
			.dp_size = worker->dp_size,
			.first_rank = ranks,
			.path = worker->path,
			.addr = &view->addr[i],
			.beat = worker->beat,
		};
		view->addr[i] = worker->addr;
		if (worker->beat != NULL)
			worker->beat->refs++;
		view->moved += worker->moved;
		memcpy(&view->rank[ranks], worker->rank, worker->dp_size * sizeof(*view->rank));
		ranks += worker->dp_size;
		if (worker->role == KVR_ROLE_PREFILL) {
			view->transfer[prefill] = worker->transfer;
			view->worker[i].transfer = &view->transfer[prefill++];
		}
		index_add(view, i);
	}
	return view;
}

void kvr_view_free(struct kvr_view *view)
{
	if (view == NULL)
		return;
	for (uint32_t i = 0; view->worker != NULL && i < view->n; i++)
		release_beat(view->worker[i].beat);
	free(view->index);
	free(view->rank);
	free(view->worker);
	free(view->transfer);
	free(view->addr);
	free(view);
}
