/* SPDX-License-Identifier: BSD-3-Clause */
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
	uint32_t age;	/* number of the death: the least is the oldest, wrapping */
};

struct kvr_registry {
	uint32_t max;
	uint32_t n;
	uint64_t seed;
	struct kvr_worker **worker; /* in order of joining */
	uint32_t tomb_mask;	    /* of rows of TOMB_WAYS */
	uint32_t deaths;
	uint64_t views; /* built */
	struct tomb *tomb;
};

static const char *const state_names[] = {
	[KVR_WORKER_JOINING] = "joining", [KVR_WORKER_SERVING] = "serving",
	[KVR_WORKER_SUSPECT] = "suspect", [KVR_WORKER_DRAINING] = "draining",
	[KVR_WORKER_DRAINED] = "drained", [KVR_WORKER_GONE] = "gone",
};

/* Allowed targets of each state, as a bit set; the picture is in the header. */
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
	struct kvr_registry *r;

	if (max_workers == 0 || max_workers > (1u << 20))
		return kvr_null(EINVAL);
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return NULL;
	r->max = max_workers;
	r->seed = seed;
	/* Four for every worker that may live. */
	while ((r->tomb_mask + 1) * TOMB_WAYS < 4 * max_workers)
		r->tomb_mask = 2 * r->tomb_mask + 1;
	r->worker = calloc(max_workers, sizeof(*r->worker));
	r->tomb = calloc((r->tomb_mask + 1) * TOMB_WAYS, sizeof(*r->tomb));
	if (r->worker == NULL || r->tomb == NULL) {
		kvr_registry_destroy(r);
		return kvr_null(ENOMEM);
	}
	return r;
}

static struct tomb *tomb_row(const struct kvr_registry *r, uint64_t id)
{
	return &r->tomb[((uint32_t)kvr_mix64(id ^ ~r->seed) & r->tomb_mask) * TOMB_WAYS];
}

/* In the place of the same worker, of nobody, or of the one that has been dead for longest. */
static void bury(struct kvr_registry *r, uint64_t id, uint32_t epoch)
{
	struct tomb *row = tomb_row(r, id), *best = &row[0];

	for (uint32_t i = 0; i < TOMB_WAYS; i++) {
		struct tomb *t = &row[i];

		if (t->epoch != 0 && t->id == id) {
			best = t;
			break;
		}
		if (best->epoch != 0 && (t->epoch == 0 || (int32_t)(t->age - best->age) < 0))
			best = t;
	}
	*best = (struct tomb){id, epoch, r->deaths++};
}

uint32_t kvr_registry_last_epoch(const struct kvr_registry *r, uint64_t id)
{
	const struct tomb *row = tomb_row(r, id);

	for (uint32_t i = 0; i < TOMB_WAYS; i++)
		if (row[i].epoch != 0 && row[i].id == id)
			return row[i].epoch;
	return 0;
}

/* ---- beats ---- */

int kvr_worker_create_beat(struct kvr_worker *w)
{
	const size_t bytes = sizeof(*w->beat) + w->dp_size * sizeof(w->beat->load[0]);
	struct kvr_beat *b = aligned_alloc(RTE_CACHE_LINE_SIZE,
					   RTE_ALIGN_CEIL(bytes, (size_t)RTE_CACHE_LINE_SIZE));

	if (b == NULL)
		return -ENOMEM;
	memset(b, 0, bytes);
	b->refs = 1;
	b->n = w->dp_size;
	w->beat = b;
	return 0;
}

static void beat_put(struct kvr_beat *b)
{
	if (b != NULL && --b->refs == 0)
		free(b);
}

/* ---- workers ---- */

#define HOP_MAC_BITS 48

uint64_t kvr_beat_hop(const struct kvr_path *from)
{
	uint64_t mac = 0;

	memcpy(&mac, from->mac, sizeof(from->mac));
	return mac | (uint64_t)(kvr_path_hash(from, 0) | 1u) << HOP_MAC_BITS;
}

bool kvr_worker_adopt_hop(struct kvr_worker *w)
{
	uint64_t hop;

	/* The word is whole by itself, and publishes nothing; most often there is none. */
	if (atomic_load_explicit(&w->beat->hop, memory_order_relaxed) == 0)
		return false;
	hop = atomic_exchange_explicit(&w->beat->hop, 0, memory_order_relaxed);
	if ((hop ^ kvr_beat_hop(&w->path)) >> HOP_MAC_BITS != 0 ||
	    memcmp(w->path.mac, &hop, sizeof(w->path.mac)) == 0)
		return false;
	memcpy(w->path.mac, &hop, sizeof(w->path.mac));
	w->moved = true;
	return true;
}

void kvr_registry_destroy(struct kvr_registry *r)
{
	if (r == NULL)
		return;
	for (uint32_t i = 0; i < r->n; i++)
		kvr_worker_free(r->worker[i]);
	free(r->tomb);
	free(r->worker);
	free(r);
}

struct kvr_worker *kvr_registry_find(struct kvr_registry *r, uint64_t id)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->worker[i]->id == id)
			return r->worker[i];
	return NULL;
}

struct kvr_worker *kvr_registry_add(struct kvr_registry *r, uint64_t id, uint64_t now_ns)
{
	struct kvr_worker *w;

	if (kvr_registry_find(r, id) != NULL)
		return kvr_null(EEXIST);
	if (r->n == r->max)
		return kvr_null(ENOSPC);
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return NULL;
	w->id = id;
	w->state = KVR_WORKER_JOINING;
	w->last_seen_ns = now_ns;
	w->since_ns = now_ns;
	memset(w->rank, 0xff, sizeof(w->rank)); /* KVR_RANK_NONE */
	r->worker[r->n++] = w;
	return w;
}

void kvr_worker_free(struct kvr_worker *w)
{
	beat_put(w->beat);
	free(w);
}

void kvr_registry_del(struct kvr_registry *r, struct kvr_worker *w)
{
	kvr_registry_remove(r, w);
	kvr_worker_free(w);
}

void kvr_registry_remove(struct kvr_registry *r, struct kvr_worker *w)
{
	uint32_t i;

	for (i = 0; i < r->n && r->worker[i] != w; i++)
		;
	if (i == r->n)
		return;
	if (w->epoch != 0)
		bury(r, w->id, w->epoch);
	memmove(&r->worker[i], &r->worker[i + 1], (r->n - i - 1) * sizeof(*r->worker));
	r->n--;
}

uint32_t kvr_registry_count(const struct kvr_registry *r)
{
	return r->n;
}

struct kvr_worker *kvr_registry_at(struct kvr_registry *r, uint32_t i)
{
	return r->worker[i];
}

bool kvr_worker_may_change(enum kvr_wire_worker_state from, enum kvr_wire_worker_state to)
{
	if ((unsigned int)from >= RTE_DIM(transitions) || (unsigned int)to >= RTE_DIM(transitions))
		return false;
	return (transitions[from] >> to & 1) != 0;
}

int kvr_worker_set_state(struct kvr_worker *w, enum kvr_wire_worker_state to, uint64_t now_ns)
{
	if (w->state == to)
		return -EALREADY;
	if (!kvr_worker_may_change(w->state, to))
		return -EPERM;
	w->state = to;
	w->since_ns = now_ns;
	if (w->beat != NULL) /* publishes nothing */
		atomic_store_explicit(&w->beat->state, to, memory_order_relaxed);
	return 0;
}

bool kvr_worker_is_loss(const struct kvr_worker *w, enum kvr_wire_worker_state from,
			enum kvr_wire_worker_state to, bool silent)
{
	const bool drained = from == KVR_WORKER_DRAINED || from == KVR_WORKER_DRAINING;

	return to == KVR_WORKER_SUSPECT ||
	       (to == KVR_WORKER_GONE && (silent || !drained || w->bookings > 0));
}

const char *kvr_worker_state_name(enum kvr_wire_worker_state s)
{
	if ((unsigned int)s >= RTE_DIM(state_names) || state_names[s] == NULL)
		return "unknown";
	return state_names[s];
}

static void index_add(struct kvr_view *v, uint32_t number)
{
	uint32_t at = (uint32_t)kvr_mix64(v->worker[number].id ^ v->seed) & v->mask;

	while (v->index[at] != 0)
		at = (at + 1) & v->mask;
	v->index[at] = number + 1;
}

struct kvr_view *kvr_view_build(struct kvr_registry *r)
{
	struct kvr_view *v = calloc(1, sizeof(*v));
	uint32_t ranks = 0, size = 2, prefill = 0;

	if (v == NULL)
		return NULL;
	for (uint32_t i = 0; i < r->n; i++) {
		ranks += r->worker[i]->dp_size;
		prefill += r->worker[i]->role == KVR_ROLE_PREFILL;
	}
	while (size < 2 * r->n)
		size *= 2;
	v->n = r->n;
	v->mask = size - 1;
	v->seed = r->seed;
	v->index = calloc(size, sizeof(*v->index));
	v->rank = calloc(ranks + 1, sizeof(*v->rank));
	v->worker = calloc(r->n + 1, sizeof(*v->worker));
	v->transfer = calloc(prefill + 1, sizeof(*v->transfer));
	v->addr = calloc(r->n + 1, sizeof(*v->addr));
	if (v->index == NULL || v->rank == NULL || v->worker == NULL || v->transfer == NULL ||
	    v->addr == NULL) {
		kvr_view_free(v);
		return kvr_null(ENOMEM);
	}
	v->number = ++r->views;
	ranks = prefill = 0;
	for (uint32_t i = 0; i < r->n; i++) {
		const struct kvr_worker *w = r->worker[i];

		v->worker[i] = (struct kvr_view_worker){
			.id = w->id,
			.epoch = w->epoch,
			.pool = (uint16_t)w->pool,
			.state = (uint16_t)w->state,
			.dp_start = w->dp_start,
			.dp_size = w->dp_size,
			.first_rank = ranks,
			.path = w->path,
			.addr = &v->addr[i],
			.beat = w->beat,
		};
		v->addr[i] = w->addr;
		if (w->beat != NULL)
			w->beat->refs++;
		v->moved += w->moved;
		memcpy(&v->rank[ranks], w->rank, w->dp_size * sizeof(*v->rank));
		ranks += w->dp_size;
		if (w->role == KVR_ROLE_PREFILL) {
			v->transfer[prefill] = w->transfer;
			v->worker[i].transfer = &v->transfer[prefill++];
		}
		index_add(v, i);
	}
	return v;
}

void kvr_view_free(struct kvr_view *v)
{
	if (v == NULL)
		return;
	for (uint32_t i = 0; v->worker != NULL && i < v->n; i++)
		beat_put(v->worker[i].beat);
	free(v->index);
	free(v->rank);
	free(v->worker);
	free(v->transfer);
	free(v->addr);
	free(v);
}
