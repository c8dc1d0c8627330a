/* SPDX-License-Identifier: BSD-3-Clause */
#include "buffers.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "source.h"

#define SMALL	(64u << 10) /* bytes that any buffer may have: heads, frames */
#define BUCKETS 4096u

/* Whose a connection's buffer of input is, by its place, or a large buffer, by its address. */
struct owner {
	LIST_ENTRY(owner) chain;
	const void *key;
	struct gw_source *source;
	uint64_t bytes;	   /* of a large buffer */
	gw_buffers_fn *fn; /* of a connection */
	void *arg;
};

static __thread struct {
	int64_t bytes; /* a buffer that was made before the first count may go */
	uint64_t share, most;
	kvr_cell_t *row;
	struct gw_sources *sources;
	struct gw_source *reading; /* libh2o reads from it now; NULL: not known */
	LIST_HEAD(, owner) owner[BUCKETS];
} mine;

void gw_buffers_limit(struct gw_sources *sources, uint64_t share, uint64_t most, kvr_cell_t *row)
{
	mine.sources = sources;
	mine.share = share;
	mine.most = most;
	mine.row = row;
}

/* ---- whose they are ---- */

static uint32_t owner_bucket(const void *key)
{
	return (uint32_t)(((uintptr_t)key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32) % BUCKETS;
}

static struct owner *find_owner(const void *key)
{
	struct owner *o;

	LIST_FOREACH (o, &mine.owner[owner_bucket(key)], chain)
		if (o->key == key)
			break;
	return o;
}

static struct owner *add_owner(const void *key, struct gw_source *source, uint64_t bytes)
{
	struct owner *o = malloc(sizeof(*o));

	if (o == NULL)
		return NULL;
	*o = (struct owner){.key = key, .source = source, .bytes = bytes};
	LIST_INSERT_HEAD(&mine.owner[owner_bucket(key)], o, chain);
	gw_source_hold(mine.sources, source, GW_BUDGET_BODIES, (int64_t)bytes);
	return o;
}

static void drop_owner(const void *key)
{
	struct owner *o = find_owner(key);

	if (o == NULL)
		return;
	LIST_REMOVE(o, chain);
	gw_source_hold(mine.sources, o->source, GW_BUDGET_BODIES, -(int64_t)o->bytes);
	free(o);
}

int gw_buffers_open(h2o_buffer_t **input, struct gw_source *source, gw_buffers_fn *fn, void *arg)
{
	struct owner *o = add_owner(input, source, 0);

	if (o == NULL)
		return -ENOMEM;
	o->fn = fn;
	o->arg = arg;
	return 0;
}

void gw_buffers_close(h2o_buffer_t **input)
{
	const struct owner *o = find_owner(input);

	if (o != NULL && mine.reading == o->source)
		mine.reading = NULL;
	drop_owner(input);
}

/* ---- what they may take ---- */

static void *find_original(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found == NULL)
		abort(); /* cannot happen: libh2o is linked */
	return found;
}

/* Its only large buffer needs no more than room. */
static bool is_share(const h2o_buffer_t *b, uint64_t bytes)
{
	const struct owner *o = find_owner(b);
	const struct gw_source *source = o != NULL ? o->source : mine.reading;

	return source == NULL || /* without an owner */
	       gw_source_held(mine.sources, source, GW_BUDGET_BODIES) ==
		       (o != NULL ? o->bytes : 0) ||
	       gw_source_fits(mine.sources, source, GW_BUDGET_BODIES, bytes, mine.share,
			      GW_BUDGET_GROWS);
}

/* Only buffers of input: of others libh2o believes that they always grow. */
static bool may_grow(const h2o_buffer_t *b, size_t more)
{
	return mine.most == 0 || b->bytes == NULL ||
	       b->_prototype != &h2o_socket_buffer_prototype || b->size + more <= SMALL ||
	       more <= b->capacity - b->size - (size_t)(b->bytes - b->_buf) ||
	       (mine.bytes + (int64_t)(b->size + more) <= (int64_t)mine.most &&
		is_share(b, b->size + more));
}

h2o_iovec_t h2o_buffer_reserve(h2o_buffer_t **inbuf, size_t min_guarantee)
{
	static __thread h2o_iovec_t (*fn)(h2o_buffer_t * *inbuf, size_t min_guarantee);
	const h2o_buffer_t *before = *inbuf;
	const struct owner *connection = find_owner(inbuf);
	h2o_iovec_t room;

	if (fn == NULL)
		*(void **)&fn = find_original("h2o_buffer_reserve");
	/* It makes room there before it reads; bodies of streams come from what it has read. */
	if (connection != NULL) {
		mine.reading = connection->source;
		connection->fn(connection->arg);
	}
	if (!may_grow(before, min_guarantee)) {
		kvr_stats_inc(mine.row, GW_BODIES_CUT);
		return h2o_iovec_init(NULL, 0);
	}
	room = fn(inbuf, min_guarantee);
	if (*inbuf == before)
		return room;
	mine.bytes += (int64_t)(*inbuf)->capacity;
	if ((*inbuf)->capacity > SMALL && mine.reading != NULL &&
	    (*inbuf)->_prototype == &h2o_socket_buffer_prototype)
		add_owner(*inbuf, mine.reading,
			  (*inbuf)->capacity); /* no memory: without an owner */
	return room;
}

void h2o_buffer__do_free(h2o_buffer_t *buffer)
{
	static __thread void (*fn)(h2o_buffer_t * buffer);

	if (fn == NULL)
		*(void **)&fn = find_original("h2o_buffer__do_free");
	mine.bytes -= (int64_t)buffer->capacity;
	if (buffer->capacity > SMALL)
		drop_owner(buffer);
	fn(buffer);
}
