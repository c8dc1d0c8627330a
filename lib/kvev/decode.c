/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches and events. Each field is a row of a table: its name in maps, its place in arrays, and
 * its reader. The forms differ in the elements of an array that follow the named places, so these
 * are recognised by their type.
 */
#include "kvev_pvt.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

enum field {
	F_NONE = 0,
	F_TYPE,
	F_HASHES,
	F_PARENT,
	F_TOKENS,
	F_BLOCK_SIZE,
	F_MEDIUM,
	F_LORA_ID,
	F_LORA,
	F_KEYS,
	F_MM,
	F_GROUP,
	F_KIND,
	F_SALT,
	F_LOCALITY,
	F_OWNERSHIP,
	F_EAGLE,
	F_ORIGIN,
	F_LOOKAHEAD,
	F_SKIP,
	F_TAIL, /* recognised by type */
};

#define NAME(text, field)                                                                          \
	{                                                                                          \
		text, sizeof(text) - 1, field                                                      \
	}
/* In the order in which engines write them. */
static const struct {
	const char *name;
	uint32_t len;
	enum field field;
} names[] = {
	NAME("type", F_TYPE),
	NAME("block_hashes", F_HASHES),
	NAME("parent_block_hash", F_PARENT),
	NAME("token_ids", F_TOKENS),
	NAME("block_size", F_BLOCK_SIZE),
	NAME("lora_id", F_LORA_ID),
	NAME("medium", F_MEDIUM),
	NAME("lora_name", F_LORA),
	NAME("extra_keys", F_KEYS),
	NAME("group_idx", F_GROUP),
	NAME("kv_cache_spec_kind", F_KIND),
	NAME("kv_cache_spec_sliding_window", F_SKIP),
	NAME("block_mm_infos", F_MM),
	NAME("cache_salt", F_SALT),
	NAME("locality", F_LOCALITY),
	NAME("ownership", F_OWNERSHIP),
	NAME("is_eagle", F_EAGLE),
	NAME("origin", F_ORIGIN),
	NAME("lookahead_token_ids", F_LOOKAHEAD),
};

static const enum field stored_places[] = {F_HASHES,  F_PARENT, F_TOKENS, F_BLOCK_SIZE,
					   F_LORA_ID, F_MEDIUM, F_LORA,	  F_KEYS};
static const enum field removed_places[] = {F_HASHES, F_MEDIUM};

struct kvr_kvev_decoder *kvr_kvev_create(bool first_bytes)
{
	struct kvr_kvev_decoder *decoder = calloc(1, sizeof(*decoder));

	if (decoder != NULL)
		decoder->first_bytes = first_bytes;
	return decoder;
}

void kvr_kvev_destroy(struct kvr_kvev_decoder *decoder)
{
	if (decoder == NULL)
		return;
	free(decoder->hashes);
	free(decoder->tokens);
	free(decoder->mm);
	free(decoder);
}

static enum kvr_kvev_type type_of(const struct mp *o)
{
	return mp_is(o, "BlockStored")	      ? KVR_KVEV_STORED
	       : mp_is(o, "BlockRemoved")     ? KVR_KVEV_REMOVED
	       : mp_is(o, "AllBlocksCleared") ? KVR_KVEV_CLEARED
					      : KVR_KVEV_UNKNOWN;
}

static bool equals_text(const struct mp *o, const char *text)
{
	return o->u == strlen(text) && strncasecmp(o->p, text, o->u) == 0;
}

static void set_medium(struct kvr_kvev *ev, const struct mp *o)
{
	static const struct {
		const char *name;
		enum kvr_tier tier;
	} media[] = {
		{"GPU", KVR_TIER_DEVICE},	{"DEVICE", KVR_TIER_DEVICE},
		{"CPU", KVR_TIER_HOST},		{"CPU_PINNED", KVR_TIER_HOST},
		{"CPU_TIER1", KVR_TIER_HOST},	{"CPU_TIER2", KVR_TIER_DISK},
		{"DISK", KVR_TIER_DISK},	{"NVME", KVR_TIER_DISK},
		{"STORAGE", KVR_TIER_DISK},	{"EXTERNAL", KVR_TIER_EXTERNAL},
		{"NETWORK", KVR_TIER_EXTERNAL}, {"REMOTE", KVR_TIER_EXTERNAL},
		{"SHARED", KVR_TIER_EXTERNAL},
	};

	if (mp_is(o, "GPU")) /* the common case */
		return;
	for (unsigned int i = 0; i < sizeof(media) / sizeof(media[0]); i++) {
		if (equals_text(o, media[i].name)) {
			ev->tier = media[i].tier;
			return;
		}
	}
	ev->fault = KVR_KVEV_MEDIUM;
}

static void set_group_kind(struct kvr_kvev *ev, const struct mp *o)
{
	ev->full_group = mp_is(o, "full_attention") || equals_text(o, "full_attention") ||
			 equals_text(o, "mla_attention") || equals_text(o, "sink_full_attention");
	ev->other_group = !ev->full_group;
}

static void set_ownership(struct kvr_kvev *ev, const struct mp *o)
{
	ev->foreign |=
		o->type != MP_BYTES ||
		(!equals_text(o, "self") && !equals_text(o, "worker") && !equals_text(o, "local"));
}

/* SGLang's map in the place of the adapter name of a salted block. */
static bool read_metadata(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev,
			  const struct mp *map)
{
	struct mp k, v;

	for (uint64_t i = 0; i < map->u; i++) {
		kvr_kvev__read(&decoder->in, &k);
		if (!kvr_kvev__skip_rest(&decoder->in, &k))
			return false;
		kvr_kvev__read(&decoder->in, &v);
		if (mp_is(&k, "cache_salt") && v.type == MP_BYTES)
			kvr_kvev__salt(ev, &v);
		else if (!kvr_kvev__skip_rest(&decoder->in, &v))
			return false;
	}
	return true;
}

/* Read a field that is one number or text. Nil leaves the field unset. */
static bool read_plain(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev, enum field f)
{
	struct mp o;

	kvr_kvev__read(&decoder->in, &o);
	if (o.type == MP_NIL)
		return true;
	if (f == F_LORA && o.type == MP_MAP)
		return read_metadata(decoder, ev, &o);
	if (f == F_LORA_ID) {
		ev->adapted |= o.type != MP_UINT || o.u > 0;
		return kvr_kvev__skip_rest(&decoder->in, &o);
	}
	if (f == F_PARENT && kvr_kvev__name(decoder, &o, &ev->parent))
		ev->has_parent = true;
	else if (f == F_BLOCK_SIZE && o.type == MP_UINT && o.u <= UINT32_MAX)
		ev->block_size = (uint32_t)o.u;
	else if (f == F_GROUP && o.type == MP_UINT && o.u <= UINT32_MAX) {
		ev->group = (uint32_t)o.u;
		ev->has_group = true;
	} else if (f == F_EAGLE && o.type == MP_BOOL)
		; /* pairs of tokens show the same; without pairs there are too few tokens */
	else if (f == F_OWNERSHIP)
		set_ownership(ev, &o);
	else if (o.type != MP_BYTES)
		ev->fault = KVR_KVEV_SHAPE;
	else if (f == F_MEDIUM)
		set_medium(ev, &o);
	else if (f == F_LORA)
		ev->lora = (struct kvr_kvev_text){o.p, (uint32_t)o.u};
	else if (f == F_SALT)
		kvr_kvev__salt(ev, &o);
	else if (f == F_KIND)
		set_group_kind(ev, &o);
	else if (f == F_LOCALITY)
		ev->foreign |= !equals_text(&o, "LOCAL");
	else if (f == F_ORIGIN)
		ev->reused = equals_text(&o, "REUSED");
	else
		ev->fault = KVR_KVEV_SHAPE;
	return kvr_kvev__skip_rest(&decoder->in, &o);
}

/* Read an element behind the named places. The first number is the group, the second its window; a
 * text is the kind of cache or the locality; a list is multimodal. */
static bool read_unnamed(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev)
{
	struct mp_in here = decoder->in;
	struct mp o;

	kvr_kvev__read(&here, &o);
	if (o.type == MP_ARRAY)
		return kvr_kvev__mm_infos(decoder, ev);
	if (o.type == MP_UINT && !ev->has_group)
		return read_plain(decoder, ev, F_GROUP);
	if (o.type == MP_BYTES)
		return read_plain(decoder, ev,
				  equals_text(&o, "LOCAL") || equals_text(&o, "REMOTE") ? F_LOCALITY
											: F_KIND);
	return kvr_kvev__skip(&decoder->in);
}

/* Only the presence of lookahead tokens matters: a block is identified by its own tokens. */
static bool read_lookahead(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev)
{
	struct mp o;

	kvr_kvev__read(&decoder->in, &o);
	ev->lookahead = o.type == MP_ARRAY && o.u > 0;
	return kvr_kvev__skip_rest(&decoder->in, &o);
}

static bool read_field(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev, enum field f)
{
	switch (f) {
	case F_HASHES:
		return kvr_kvev__hashes(decoder, ev);
	case F_TOKENS:
		return kvr_kvev__tokens(decoder, ev);
	case F_KEYS:
		return kvr_kvev__extra_keys(decoder, ev);
	case F_MM:
		return kvr_kvev__mm_infos(decoder, ev);
	case F_TAIL:
		return read_unnamed(decoder, ev);
	case F_LOOKAHEAD:
		return read_lookahead(decoder, ev);
	case F_NONE:
	case F_SKIP:
		return kvr_kvev__skip(&decoder->in);
	default:
		return read_plain(decoder, ev, f);
	}
}

#define N_NAMES (sizeof(names) / sizeof(names[0]))

/* Names come in the order of the table, so the search continues behind the previous one. */
static enum field field_named(const struct mp *k, unsigned int *at)
{
	for (unsigned int i = 0; i < N_NAMES && k->type == MP_BYTES; i++) {
		*at = *at + 1 < N_NAMES ? *at + 1 : 0;
		if (k->u == names[*at].len && memcmp(k->p, names[*at].name, k->u) == 0)
			return names[*at].field;
	}
	return F_SKIP;
}

/* Compare with the next name of the table first, which matches nearly always and needs no
 * parsing. */
static bool next_name(struct mp_in *in, unsigned int *at, enum field *f)
{
	const unsigned int next = *at + 1 < N_NAMES ? *at + 1 : 0;
	const uint32_t len = names[next].len;
	struct mp k;

	if ((size_t)(in->end - in->p) > len && *in->p == (0xa0 | len) &&
	    memcmp(in->p + 1, names[next].name, len) == 0) {
		in->p += 1 + len;
		*at = next;
		*f = names[next].field;
		return true;
	}
	kvr_kvev__read(in, &k);
	if (!kvr_kvev__skip_rest(in, &k))
		return false;
	*f = field_named(&k, at);
	return true;
}

static bool from_map(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev, uint64_t n)
{
	unsigned int at = N_NAMES - 1;
	bool typed = false;
	struct mp v;

	for (uint64_t i = 0; i < n; i++) {
		enum field f;

		if (!next_name(&decoder->in, &at, &f))
			return false;
		if (f != F_TYPE) {
			if (!read_field(decoder, ev, f))
				return false;
			continue;
		}
		kvr_kvev__read(&decoder->in, &v);
		if (!kvr_kvev__skip_rest(&decoder->in, &v))
			return false;
		ev->type = type_of(&v);
		typed = true;
	}
	if (!typed)
		ev->type = KVR_KVEV_UNKNOWN;
	kvr_kvev__salt_or_image(decoder, ev);
	return true;
}

static bool from_array(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev, uint64_t n)
{
	const enum field *places = stored_places;
	unsigned int n_places = 0;
	struct mp o;

	if (n == 0)
		return true;
	kvr_kvev__read(&decoder->in, &o);
	if (!kvr_kvev__skip_rest(&decoder->in, &o))
		return false;
	ev->type = type_of(&o);
	if (ev->type == KVR_KVEV_STORED)
		n_places = sizeof(stored_places) / sizeof(stored_places[0]);
	if (ev->type == KVR_KVEV_REMOVED) {
		places = removed_places;
		n_places = sizeof(removed_places) / sizeof(removed_places[0]);
	}
	for (uint64_t i = 0; i + 1 < n; i++) {
		const enum field f = i < n_places		    ? places[i]
				     : ev->type == KVR_KVEV_UNKNOWN ? F_SKIP
								    : F_TAIL;

		if (!read_field(decoder, ev, f))
			return false;
	}
	return true;
}

/*
 * The rank of an array follows the events. Encoders write a rank below 128 as one byte, the last.
 * If that byte could be the end of a longer number, the events are skipped to find the rank. A
 * wrong guess is detected when all events are read.
 */
static bool guess_rank(struct kvr_kvev_decoder *decoder, struct kvr_kvev_batch *batch)
{
	const uint8_t *end = decoder->in.end, last = end[-1];
	const ptrdiff_t n = end - decoder->in.p;

	if ((last >= 0x80 && last != 0xc0) || n < 9)
		return false;
	for (int size = 1; size <= 8; size *= 2) {
		const uint8_t before = end[-1 - size];

		if (before >= 0xca && before <= 0xd3)
			return false;
	}
	decoder->tail = 1;
	batch->has_rank = last != 0xc0;
	batch->rank = batch->has_rank ? last : 0;
	return true;
}

static bool read_rank(struct mp_in *in, struct kvr_kvev_batch *batch)
{
	struct mp o;

	kvr_kvev__read(in, &o);
	batch->has_rank = o.type == MP_UINT && o.u <= UINT32_MAX;
	batch->rank = batch->has_rank ? (uint32_t)o.u : 0;
	return batch->has_rank || o.type == MP_NIL;
}

static int open_array(struct kvr_kvev_decoder *decoder, uint64_t n, struct kvr_kvev_batch *batch)
{
	struct mp_in rest;
	struct mp o;

	if (n < 2)
		return -EBADMSG;
	kvr_kvev__read(&decoder->in, &o);
	if (o.type == MP_UINT || o.type == MP_INT)
		o.f = (double)(int64_t)o.u;
	else if (o.type != MP_FLOAT)
		return -EBADMSG;
	batch->ts = o.f;
	kvr_kvev__read(&decoder->in, &o);
	if (o.type != MP_ARRAY)
		return -EBADMSG;
	decoder->left = batch->n_events = (uint32_t)o.u;
	if (n == 2 || (n == 3 && guess_rank(decoder, batch)))
		return 0;
	rest = decoder->in;
	if (!kvr_kvev__skip_rest(&rest, &o))
		return -EBADMSG;
	decoder->tail = (size_t)(rest.end - rest.p);
	if (!read_rank(&rest, batch))
		return -EBADMSG;
	for (; n > 3; n--)
		if (!kvr_kvev__skip(&rest))
			return -EBADMSG;
	return rest.p == rest.end ? 0 : -EBADMSG;
}

static int open_map(struct kvr_kvev_decoder *decoder, uint64_t n, struct kvr_kvev_batch *batch)
{
	struct mp_in in = decoder->in, events = {0};
	struct mp k, v;

	for (uint64_t i = 0; i < n; i++) {
		kvr_kvev__read(&in, &k);
		if (!kvr_kvev__skip_rest(&in, &k))
			return -EBADMSG;
		if (mp_is(&k, "data_parallel_rank") || mp_is(&k, "attn_dp_rank")) {
			if (!read_rank(&in, batch))
				return -EBADMSG;
			continue;
		}
		kvr_kvev__read(&in, &v);
		if (mp_is(&k, "events") && v.type == MP_ARRAY) {
			events = in;
			batch->n_events = (uint32_t)v.u;
		}
		if (mp_is(&k, "ts") && v.type == MP_FLOAT)
			batch->ts = v.f;
		if (!kvr_kvev__skip_rest(&in, &v))
			return -EBADMSG;
	}
	if (events.p == NULL || in.p != in.end)
		return -EBADMSG;
	decoder->tail = KVEV_ANY_TAIL;
	decoder->in = events;
	decoder->left = batch->n_events;
	return 0;
}

int kvr_kvev_open(struct kvr_kvev_decoder *decoder, const void *payload, size_t len,
		  struct kvr_kvev_batch *batch)
{
	struct mp o;
	int rc = -EBADMSG;

	*batch = (struct kvr_kvev_batch){0};
	decoder->in = (struct mp_in){payload, (const uint8_t *)payload + len};
	decoder->left = 0;
	decoder->tail = 0;
	decoder->err = 0;
	if (len > UINT32_MAX)
		return -EBADMSG;
	kvr_kvev__read(&decoder->in, &o);
	if (o.type == MP_ARRAY)
		rc = open_array(decoder, o.u, batch);
	else if (o.type == MP_MAP)
		rc = open_map(decoder, o.u, batch);
	if (rc < 0)
		decoder->left = 0;
	return rc;
}

/* The bytes behind the last event must be those seen, or guessed, at the start. */
static int close_batch(const struct kvr_kvev_decoder *decoder)
{
	return decoder->tail == KVEV_ANY_TAIL ||
			       decoder->tail == (size_t)(decoder->in.end - decoder->in.p)
		       ? 0
		       : -EBADMSG;
}

int kvr_kvev_next(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev)
{
	const uint8_t *begin = decoder->in.p;
	bool read = false;
	struct mp o;

	*ev = (struct kvr_kvev){.strange_block = UINT32_MAX};
	decoder->either.len = 0;
	if (decoder->left == 0)
		return close_batch(decoder);
	decoder->left--;
	kvr_kvev__read(&decoder->in, &o);
	if (o.type == MP_MAP)
		read = from_map(decoder, ev, o.u);
	else if (o.type == MP_ARRAY)
		read = from_array(decoder, ev, o.u);
	else
		read = kvr_kvev__skip_rest(&decoder->in, &o);
	if (!read) {
		decoder->left = 0;
		return decoder->err != 0 ? decoder->err : -EBADMSG;
	}
	ev->raw = (struct kvr_kvev_text){(const char *)begin, (uint32_t)(decoder->in.p - begin)};
	if ((ev->type == KVR_KVEV_STORED || ev->type == KVR_KVEV_REMOVED) && ev->n_hashes == 0)
		ev->fault = KVR_KVEV_SHAPE;
	if (ev->adapted && ev->lora.len == 0)
		ev->strange_block =
			0; /* a number private to the engine: not blocks of the base model */
	return 1;
}
