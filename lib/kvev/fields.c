/* SPDX-License-Identifier: BSD-3-Clause */
/* Fields that are lists: block names, tokens, and keys of blocks. */
#include "kvev_pvt.h"

#include <errno.h>
#include <stdlib.h>

#include "kvr_hash.h"

/* Return an array with room for n elements, or NULL. The caller has checked n against the bytes of
 * the payload. */
static void *grow_array(struct kvr_kvev_decoder *decoder, void *array, uint32_t *cap, uint64_t n,
			size_t size)
{
	void *larger;

	if (n <= *cap)
		return array;
	n += n / 2;
	larger = realloc(array, n * size);
	if (larger == NULL) {
		decoder->err = -ENOMEM;
		return NULL;
	}
	*cap = (uint32_t)n;
	return larger;
}

static bool skip_wrong(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev, const struct mp *o)
{
	ev->fault = KVR_KVEV_SHAPE;
	return kvr_kvev__skip_rest(&decoder->in, o);
}

bool kvr_kvev__name(const struct kvr_kvev_decoder *decoder, const struct mp *o, uint64_t *name)
{
	if (o->type == MP_UINT || o->type == MP_INT) {
		*name = o->u;
		return true;
	}
	if (o->type != MP_BYTES || o->u < 8)
		return false;
	*name = mp_be64((const uint8_t *)o->p + (decoder->first_bytes ? 0 : o->u - 8));
	return true;
}

/* Read names in the usual form: eight bytes behind a type byte, signed or unsigned. Stop at the
 * first name in another form. @return the number of names read. */
static uint64_t read_names(struct mp_in *in, uint64_t n, uint64_t *out)
{
	const uint8_t *p = in->p, *end = in->end;
	uint64_t i = 0;

	if (n >= 8 && kvr_kvev__has_avx512())
		i = kvr_kvev__names_wide(&p, end, n, out);
	for (; i < n && end - p >= 9 && (*p == 0xcf || *p == 0xd3); i++, p += 9)
		out[i] = mp_be64(p + 1);
	in->p = p;
	return i;
}

bool kvr_kvev__hashes(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev)
{
	uint64_t *out;
	struct mp o;
	uint64_t n;

	kvr_kvev__read(&decoder->in, &o);
	if (o.type != MP_ARRAY)
		return skip_wrong(decoder, ev, &o);
	n = o.u;
	out = grow_array(decoder, decoder->hashes, &decoder->cap_hashes, n, sizeof(out[0]));
	if (out == NULL)
		return n == 0;
	decoder->hashes = out;
	for (uint64_t i = read_names(&decoder->in, n, out); i < n; i++) {
		kvr_kvev__read(&decoder->in, &o);
		if (o.type == MP_BAD)
			return false;
		if (!kvr_kvev__name(decoder, &o, &out[i]) && !skip_wrong(decoder, ev, &o))
			return false;
	}
	ev->hashes = out;
	ev->n_hashes = (uint32_t)n;
	return true;
}

/* Read pairs (t0, t1), (t1, t2) ...: take the first token of each, and the second of the last
 * pair. */
static bool read_pairs(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev, uint64_t n)
{
	uint32_t two[2] = {0};

	for (uint64_t i = 0; i < n; i++) {
		struct mp o;

		kvr_kvev__read(&decoder->in, &o);
		if (o.type != MP_ARRAY || o.u != 2) {
			if (!skip_wrong(decoder, ev, &o))
				return false;
		} else if (kvr_kvev__numbers(&decoder->in, 2, two) != 2) {
			return false;
		}
		decoder->tokens[i] = two[0];
	}
	decoder->tokens[n] = two[1];
	ev->eagle = true;
	ev->n_tokens = (uint32_t)n + 1;
	return true;
}

bool kvr_kvev__tokens(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev)
{
	uint32_t *out;
	struct mp o;
	uint64_t n, i;

	kvr_kvev__read(&decoder->in, &o);
	if (o.type == MP_NIL)
		return true;
	if (o.type != MP_ARRAY)
		return skip_wrong(decoder, ev, &o);
	n = o.u;
	if (n == 0)
		return true;
	out = grow_array(decoder, decoder->tokens, &decoder->cap_tokens, n + 1, sizeof(out[0]));
	if (out == NULL)
		return false;
	decoder->tokens = out;
	ev->tokens = out;
	if (decoder->in.p < decoder->in.end && *decoder->in.p == 0x92)
		return read_pairs(decoder, ev, n);
	i = kvr_kvev__numbers(&decoder->in, n, out);
	ev->n_tokens = (uint32_t)i;
	if (i < n)
		ev->fault = KVR_KVEV_SHAPE;
	for (; i < n; i++)
		if (!kvr_kvev__skip(&decoder->in))
			return false;
	return true;
}

static bool add_mm(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev, uint32_t block,
		   uint64_t hash)
{
	struct kvr_kvev_mm *out =
		grow_array(decoder, decoder->mm, &decoder->cap_mm, ev->n_mm + 1ull, sizeof(out[0]));

	if (out == NULL)
		return false;
	decoder->mm = out;
	ev->mm = out;
	out[ev->n_mm++] = (struct kvr_kvev_mm){block, hash};
	return true;
}

/* Parse the first 16 of 64 hexadecimal digits. */
static bool parse_hex64(const struct mp *o, uint64_t *hash)
{
	*hash = 0;
	if (o->u != 64)
		return false;
	for (int i = 0; i < 64; i++) {
		const char c = o->p[i], l = (char)(c | 0x20);

		if (!((c >= '0' && c <= '9') || (l >= 'a' && l <= 'f')))
			return false;
		if (i < 16)
			*hash = *hash << 4 | (uint64_t)(c <= '9' ? c - '0' : l - 'a' + 10);
	}
	return true;
}

static void mark_strange(struct kvr_kvev *ev, uint32_t block)
{
	if (block < ev->strange_block)
		ev->strange_block = block;
}

static bool same_salt(const struct kvr_kvev *ev, const struct kvr_kvev_text *t)
{
	return ev->salt.len == t->len && memcmp(ev->salt.p, t->p, t->len) == 0;
}

void kvr_kvev__salt(struct kvr_kvev *ev, const struct mp *o)
{
	const size_t tag = sizeof(KVR_HASH_SALT_TAG) - 1;
	const size_t skip = o->u > tag && memcmp(o->p, KVR_HASH_SALT_TAG, tag) == 0 ? tag : 0;
	const struct kvr_kvev_text t = {o->p + skip, (uint32_t)(o->u - skip)};

	if (ev->salt.len == 0)
		ev->salt = t;
	else if (!same_salt(ev, &t)) /* a salt may occur both as a field and as a key */
		mark_strange(ev, 0);
}

/*
 * A key of 64 hexadecimal digits is an image (RULES.md, section 4), and a salt without a tag may
 * look the same. In the first block of a prompt vLLM puts its salt behind all images, which were
 * pairs before its fields had names: the last single key is the salt. With other engines an image
 * that continues in the next block remains an image.
 */
void kvr_kvev__salt_or_image(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev)
{
	struct kvr_kvev_mm *mm = decoder->mm;

	if (decoder->either.len == 0 || ev->has_parent ||
	    (ev->salt.len != 0 && !same_salt(ev, &decoder->either)))
		return;
	for (uint32_t i = 0; i < ev->n_mm && ev->salt.len == 0; i++)
		if (mm[i].block > 0 && mm[i].hash == mm[decoder->either_mm].hash)
			return;
	ev->salt = decoder->either;
	ev->n_mm--;
	memmove(&mm[decoder->either_mm], &mm[decoder->either_mm + 1],
		(ev->n_mm - decoder->either_mm) * sizeof(mm[0]));
}

/*
 * Read one key of a block: a string, or a pair of a string and the start of the object. Binary data
 * are vLLM's digest of embeddings that replace tokens. No name can be computed from it.
 */
static bool read_key(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev, uint32_t block,
		     bool *lora_seen)
{
	const bool bytes = mp_is_bin(&decoder->in);
	bool pair = false;
	uint64_t hash;
	struct mp o;

	kvr_kvev__read(&decoder->in, &o);
	if (o.type == MP_ARRAY && o.u == 2) {
		pair = true;
		kvr_kvev__read(&decoder->in, &o);
		if (!kvr_kvev__skip_rest(&decoder->in, &o) || !kvr_kvev__skip(&decoder->in))
			return false;
	}
	if (o.type != MP_BYTES || bytes) {
		if (o.type != MP_NIL)
			mark_strange(ev, block);
		return pair || kvr_kvev__skip_rest(&decoder->in, &o);
	}
	if (!pair && !*lora_seen && o.u == ev->lora.len && memcmp(o.p, ev->lora.p, o.u) == 0) {
		*lora_seen = true;
	} else if (parse_hex64(&o, &hash)) {
		if (!pair && block == 0) {
			decoder->either = (struct kvr_kvev_text){o.p, (uint32_t)o.u};
			decoder->either_mm = ev->n_mm;
		}
		return add_mm(decoder, ev, block, hash);
	} else if (!pair && block == 0 && !ev->has_parent) {
		kvr_kvev__salt(ev, &o);
	} else {
		mark_strange(ev, block);
	}
	return true;
}

bool kvr_kvev__extra_keys(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev)
{
	struct mp o;
	uint64_t n;

	kvr_kvev__read(&decoder->in, &o);
	if (o.type == MP_NIL)
		return true;
	if (o.type != MP_ARRAY)
		return skip_wrong(decoder, ev, &o);
	n = o.u;
	for (uint64_t block = 0; block < n; block++) {
		bool lora_seen = ev->lora.len == 0;
		uint64_t keys;

		kvr_kvev__read(&decoder->in, &o);
		if (o.type == MP_NIL)
			continue;
		if (o.type != MP_ARRAY) {
			mark_strange(ev, (uint32_t)block);
			if (!kvr_kvev__skip_rest(&decoder->in, &o))
				return false;
			continue;
		}
		keys = o.u;
		for (uint64_t i = 0; i < keys; i++)
			if (!read_key(decoder, ev, (uint32_t)block, &lora_seen))
				return false;
	}
	return true;
}

/* Read an object {"mm_hash": number, ...}. */
static bool mm_object(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev, uint32_t block)
{
	struct mp o, k;
	uint64_t n;

	kvr_kvev__read(&decoder->in, &o);
	if (o.type != MP_MAP) {
		mark_strange(ev, block);
		return kvr_kvev__skip_rest(&decoder->in, &o);
	}
	n = o.u;
	for (uint64_t i = 0; i < n; i++) {
		kvr_kvev__read(&decoder->in, &k);
		if (!kvr_kvev__skip_rest(&decoder->in, &k))
			return false;
		kvr_kvev__read(&decoder->in, &o);
		if (mp_is(&k, "mm_hash") && (o.type == MP_UINT || o.type == MP_INT)) {
			if (!add_mm(decoder, ev, block, o.u))
				return false;
		} else if (!kvr_kvev__skip_rest(&decoder->in, &o)) {
			return false;
		}
	}
	return true;
}

/* Read for each block nil, or {"mm_objects": [object ...]}. */
bool kvr_kvev__mm_infos(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev)
{
	struct mp o, k;
	uint64_t n;

	kvr_kvev__read(&decoder->in, &o);
	if (o.type != MP_ARRAY)
		return o.type == MP_NIL || skip_wrong(decoder, ev, &o);
	n = o.u;
	for (uint64_t block = 0; block < n; block++) {
		uint64_t members;

		kvr_kvev__read(&decoder->in, &o);
		if (o.type != MP_MAP) {
			if (!kvr_kvev__skip_rest(&decoder->in, &o))
				return false;
			continue;
		}
		members = o.u;
		for (uint64_t i = 0; i < members; i++) {
			kvr_kvev__read(&decoder->in, &k);
			if (!kvr_kvev__skip_rest(&decoder->in, &k))
				return false;
			kvr_kvev__read(&decoder->in, &o);
			if (!mp_is(&k, "mm_objects") || o.type != MP_ARRAY) {
				if (!kvr_kvev__skip_rest(&decoder->in, &o))
					return false;
				continue;
			}
			for (uint64_t left = o.u; left > 0; left--)
				if (!mm_object(decoder, ev, (uint32_t)block))
					return false;
		}
	}
	return true;
}
