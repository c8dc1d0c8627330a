/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parser of hints. The table of rows, made from KVR_HINTS, has the messages of each hint, and the
 * format, bounds and place of its value; parse_value() has one case per format.
 */
#include "hints_pvt.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- the table --------------------------------------------------------------------------- */

#define IN(message)  (1u << KVR_HINTS_##message)
#define IN_REQUEST   (IN(ROUTE) | IN(DISPATCH))
#define IN_DISPATCH  IN(DISPATCH)
#define IN_ADDRESS   (IN(ACCEPTED) | IN(HELLO))
#define IN_ACCEPTED  IN(ACCEPTED)
#define IN_ITEM	     IN(ITEM)
#define IN_HELLO     IN(HELLO)
#define IN_POOL	     (IN(HELLO) | IN(CONNECT))
#define AT(member)   offsetof(struct kvr_hints, member)
#define LIST(member) AT(member), offsetof(struct kvr_hint_lists, member)

/* Offsets of the value and of the memory of its list. */
#define PLACE_U64(m)		AT(m), 0
#define PLACE_U32(m)		AT(m), 0
#define PLACE_I32(m)		AT(m), 0
#define PLACE_F64(m)		AT(m), 0
#define PLACE_TEXT(m)		AT(m), 0
#define PLACE_BYTES(m)		AT(m), 0
#define PLACE_TEXTS(m)		LIST(m)
#define PLACE_PAIRS(m)		LIST(m)
#define PLACE_PREFERRED(m)	LIST(m)
#define PLACE_RANGES(m)		LIST(m)
#define PLACE_U64S(m)		AT(m), 0
#define PLACE_RANKS(m)		AT(m), 0
#define PLACE_MM(m)		AT(n_##m), 0
#define PLACE_OVERRIDE(m)	AT(m), 0
#define PLACE_SESSION(m)	AT(m), 0
#define PLACE_BODY(m)		AT(m), 0
#define PLACE_BOOTSTRAP(m)	AT(m), 0
#define PLACE_BOOTSTRAP_ADDR(m) AT(m), 0
#define PLACE_KV_TRANSFER(m)	AT(m), 0
#define PLACE_TRACKER(m)	AT(m), 0

#define ROW(name, type, in, format, least, most, entries, member, header, json, meaning)           \
	[(type)&0x3f] = {type,	  KVR_FORMAT_##format,	  IN_##in, least,  most,                   \
			 entries, PLACE_##format(member), #name,   header, json},

const struct kvr_hint_row kvr_hint_rows[KVR_HINT_ROWS] = {KVR_HINTS(ROW)};

/* ---- values ------------------------------------------------------------------------------ */

static double get_f64(const uint8_t *p)
{
	double v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Length of the UTF-8 sequence that starts with @p c, 0 for a byte that starts none. */
static uint32_t utf8_len(uint8_t c)
{
	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		return 2;
	if (c >= 0xe0 && c <= 0xef)
		return 3;
	return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

/* Strings end up in logs, metrics and JSON: valid UTF-8 without control characters. */
static bool is_text(const uint8_t *p, uint32_t len)
{
	for (uint32_t i = 0, n; i < len; i += n) {
		const uint8_t c = p[i];

		n = utf8_len(c);
		if (n == 0 || n > len - i || c < 0x20 || c == 0x7f)
			return false;
		for (uint32_t k = 1; k < n; k++)
			if ((p[i + k] & 0xc0) != 0x80)
				return false;
		/* Overlong forms, surrogates, beyond U+10FFFF: decided by the second byte. */
		if ((c == 0xe0 && p[i + 1] < 0xa0) || (c == 0xed && p[i + 1] > 0x9f) ||
		    (c == 0xf0 && p[i + 1] < 0x90) || (c == 0xf4 && p[i + 1] > 0x8f))
			return false;
	}
	return true;
}

bool kvr_session_id_ok(const void *id, uint32_t len)
{
	return len > 0 && len <= KVR_HINT_MAX_SESSION && is_text(id, len);
}

bool kvr_override_ok(uint32_t field, double value)
{
	enum { NONE, POSITIVE, SWITCH, SHARE };
#define RANGE(name, number, json, range) [number] = range,
	static const uint8_t ranges[] = {KVR_OVERRIDES(RANGE)};

	switch (field < sizeof(ranges) ? ranges[field] : NONE) {
	case POSITIVE:
		return isfinite(value) && value >= 0.0;
	case SWITCH:
		return value == 0.0 || value == 1.0;
	case SHARE:
		return value >= 0.0 && value <= 1.0;
	default:
		return false;
	}
}

/* A TLV with its row and the place of its value. */
struct value {
	const struct kvr_hint_row *row;
	const struct kvr_tlv *tlv;
	void *at;
	void *store;
};

static enum kvr_code ok_if(bool ok)
{
	return ok ? KVR_OK : KVR_E_HINT;
}

static bool parse_number(const struct value *v, uint32_t len)
{
	if (v->tlv->len != len)
		return false;
	memcpy(v->at, v->tlv->value, len);
	return true;
}

/* A number that the choice computes with: NaN or infinity would spoil every cost. */
static enum kvr_code parse_f64(const struct value *v)
{
	double number;

	if (!parse_number(v, sizeof(number)))
		return KVR_E_HINT;
	memcpy(&number, v->at, sizeof(number));
	return isfinite(number) ? KVR_OK : KVR_E_INVALID_WEIGHT;
}

static bool parse_bytes(const struct value *v)
{
	*(struct kvr_str *)v->at = (struct kvr_str){(const char *)v->tlv->value, v->tlv->len};
	return v->tlv->len >= v->row->least && v->tlv->len <= v->row->most;
}

/* Text after @p skip bytes of the value. */
static bool parse_text(const struct value *v, uint32_t skip, struct kvr_str *out)
{
	const struct kvr_tlv *t = v->tlv;

	if (t->len < skip || t->len - skip < v->row->least || t->len - skip > v->row->most ||
	    !is_text(t->value + skip, t->len - skip))
		return false;
	*out = (struct kvr_str){(const char *)t->value + skip, t->len - skip};
	return true;
}

/* Number of entries of a list member: it follows the pointer. */
static uint32_t *count_of(const struct value *v)
{
	return (uint32_t *)((uint8_t *)v->at + sizeof(void *));
}

/* Take the next entry of @p size bytes of a list. @return NULL: it is full. */
static void *next_entry(const struct value *v, size_t size)
{
	uint32_t *n = count_of(v);

	if (*n == v->row->entries)
		return NULL;
	*(const void **)v->at = v->store;
	return (uint8_t *)v->store + size * (*n)++;
}

static bool parse_texts(const struct value *v)
{
	struct kvr_str *entry = next_entry(v, sizeof(*entry));

	return entry != NULL && parse_text(v, 0, entry);
}

/* "key=value", neither part empty. */
static bool parse_pair(const struct value *v)
{
	struct kvr_str *entry = next_entry(v, sizeof(*entry));
	const char *eq;

	if (entry == NULL || !parse_text(v, 0, entry))
		return false;
	eq = memchr(entry->p, '=', entry->len);
	return eq != NULL && eq != entry->p && eq != entry->p + entry->len - 1;
}

static enum kvr_code parse_preferred(const struct value *v)
{
	struct kvr_hint_preferred *entry = next_entry(v, sizeof(*entry));

	if (entry == NULL || !parse_text(v, 8, &entry->taint))
		return KVR_E_HINT;
	entry->weight = get_f64(v->tlv->value);
	return isfinite(entry->weight) ? KVR_OK : KVR_E_INVALID_WEIGHT;
}

static bool parse_range(const struct value *v)
{
	const uint32_t n = *count_of(v);
	struct kvr_hint_range *entry = next_entry(v, sizeof(*entry));

	if (entry == NULL || v->tlv->len != 8)
		return false;
	entry->start = get_u32(v->tlv->value);
	entry->end = get_u32(v->tlv->value + 4);
	return entry->start < entry->end && (n == 0 || entry->start >= entry[-1].end);
}

/* A list in one hint, which is read in place. */
static bool parse_array(const struct value *v, uint32_t size)
{
	const uint32_t n = v->tlv->len / size;

	*(const void **)v->at = v->tlv->value;
	*count_of(v) = n;
	return v->tlv->len % size == 0 && n >= v->row->least && n <= v->row->most;
}

static bool parse_ranks(const struct value *v)
{
	const struct kvr_wire_rank *rank = (const struct kvr_wire_rank *)v->tlv->value;

	if (!parse_array(v, sizeof(*rank)))
		return false;
	for (uint32_t i = 0; i < *count_of(v); i++)
		if (rank[i].reserved != 0)
			return false;
	return true;
}

/* Blocks ascend, so that hashing can merge them in one pass. */
static bool parse_mm(const struct value *v, uint64_t *least_block)
{
	const struct kvr_tlv *t = v->tlv;
	uint32_t block;

	if (t->len < 8)
		return false;
	block = get_u32(t->value);
	if ((uint64_t)get_u32(t->value + 4) * 8 != t->len - 8u || block < *least_block ||
	    t->len - 8u > v->row->most * 8u)
		return false;
	*least_block = (uint64_t)block + 1;
	++*(uint32_t *)v->at;
	return true;
}

static enum kvr_code parse_override(const struct value *v)
{
	const struct kvr_tlv *t = v->tlv;
	struct kvr_hint_overrides *o = v->at;
	uint32_t field;
	double number;

	if (t->len != 16 || get_u32(t->value + 4) != 0)
		return KVR_E_HINT;
	field = get_u32(t->value);
	number = get_f64(t->value + 8);
	if (!kvr_override_ok(field, number) || (o->given >> field & 1) != 0)
		return KVR_E_INVALID_OVERRIDE;
	o->given |= 1u << field;
	o->value[field] = number;
	return KVR_OK;
}

static enum kvr_code parse_session(const struct value *v)
{
	const struct kvr_tlv *t = v->tlv;
	struct kvr_hint_session *s = v->at;

	if (t->len < 8 || !all_zero(t->value + 1, 3))
		return KVR_E_HINT;
	s->id = (struct kvr_str){(const char *)t->value + 8, t->len - 8u};
	s->action = t->value[0];
	s->timeout_s = get_u32(t->value + 4);
	if (s->timeout_s == KVR_NONE32)
		s->timeout_s = KVR_WIRE_SESSION_DEF_S;
	if (!kvr_session_id_ok(s->id.p, s->id.len) || s->action > KVR_ACTION_CLOSE ||
	    s->timeout_s == 0 || s->timeout_s > KVR_WIRE_SESSION_MAX_S)
		return KVR_E_INVALID_SESSION;
	return KVR_OK;
}

static bool parse_body(const struct value *v)
{
	struct kvr_hint_body *b = v->at;

	if (v->tlv->len != 8 + KVR_WIRE_TOKEN)
		return false;
	b->len = get_u64(v->tlv->value);
	b->token = v->tlv->value + 8;
	return b->len != 0 && b->len <= KVR_WIRE_MAX_AWAY;
}

/* With a room of @p room bytes, 8 or 0. */
static bool parse_bootstrap(const struct value *v, uint32_t room)
{
	const uint8_t *p = v->tlv->value;
	struct kvr_hint_bootstrap *b = v->at;

	if (!parse_text(v, room + 8, &b->host))
		return false;
	b->room = room != 0 ? get_u64(p) : 0;
	b->port = get_u16(p + room);
	return all_zero(p + room + 2, 6);
}

static enum kvr_code parse_kv_transfer(const struct value *v)
{
	const uint8_t *p = v->tlv->value;
	struct kvr_hint_kv_transfer *transfer = v->at;

	if (!parse_text(v, 16, &transfer->domain) || p[0] > 2 || !all_zero(p + 1, 7))
		return KVR_E_HINT;
	transfer->enforcement = p[0];
	transfer->weight = get_f64(p + 8);
	return isfinite(transfer->weight) ? KVR_OK : KVR_E_INVALID_WEIGHT;
}

/* Later versions may append fields. */
static bool parse_tracker(const struct value *v)
{
	*(const struct kvr_wire_tracker **)v->at = (const struct kvr_wire_tracker *)v->tlv->value;
	return v->tlv->len >= sizeof(struct kvr_wire_tracker);
}

static enum kvr_code parse_value(const struct value *v, uint64_t *least_block)
{
	switch (v->row->format) {
	case KVR_FORMAT_U64:
		return ok_if(parse_number(v, 8));
	case KVR_FORMAT_U32:
	case KVR_FORMAT_I32:
		return ok_if(parse_number(v, 4));
	case KVR_FORMAT_F64:
		return parse_f64(v);
	case KVR_FORMAT_TEXT:
		return ok_if(parse_text(v, 0, v->at));
	case KVR_FORMAT_BYTES:
		return ok_if(parse_bytes(v));
	case KVR_FORMAT_TEXTS:
		return ok_if(parse_texts(v));
	case KVR_FORMAT_PAIRS:
		return ok_if(parse_pair(v));
	case KVR_FORMAT_PREFERRED:
		return parse_preferred(v);
	case KVR_FORMAT_RANGES:
		return ok_if(parse_range(v));
	case KVR_FORMAT_U64S:
		return ok_if(parse_array(v, sizeof(uint64_t)));
	case KVR_FORMAT_RANKS:
		return ok_if(parse_ranks(v));
	case KVR_FORMAT_MM:
		return ok_if(parse_mm(v, least_block));
	case KVR_FORMAT_OVERRIDE:
		return parse_override(v);
	case KVR_FORMAT_SESSION:
		return parse_session(v);
	case KVR_FORMAT_BODY:
		return ok_if(parse_body(v));
	case KVR_FORMAT_BOOTSTRAP:
		return ok_if(parse_bootstrap(v, 8));
	case KVR_FORMAT_BOOTSTRAP_ADDR:
		return ok_if(parse_bootstrap(v, 0));
	case KVR_FORMAT_KV_TRANSFER:
		return parse_kv_transfer(v);
	case KVR_FORMAT_TRACKER:
		return ok_if(parse_tracker(v));
	default:
		return KVR_E_HINT;
	}
}

/* ---- hints ------------------------------------------------------------------------------- */

/* True if a message of kind @p in may have the hint. A hint that only the router adds is known in
 * ROUTE, too, and rejected there. */
static bool is_known(const struct kvr_hint_row *row, uint16_t type, enum kvr_hints_in in)
{
	if (row->type != type || row->format == 0)
		return false;
	return (row->in >> in & 1) != 0 || (in == KVR_HINTS_ROUTE && row->in == IN_DISPATCH);
}

enum kvr_code kvr_hints_parse(const void *p, uint32_t len, enum kvr_hints_in in,
			      struct kvr_hints *out, struct kvr_hint_lists *lists)
{
	struct kvr_tlv_iter it = kvr_tlv_begin(p, len);
	const bool request = in == KVR_HINTS_ROUTE || in == KVR_HINTS_DISPATCH;
	struct kvr_tlv t;
	uint64_t least_block = 0;
	enum kvr_code code;
	int more;

	if (len > KVR_WIRE_MAX_HINTS)
		return KVR_E_TOO_LARGE;
	if (len % 8 != 0)
		return KVR_E_HINT;
	memset(out, 0, request ? offsetof(struct kvr_hints, engine_addr) : sizeof(*out));
	out->tlvs = p;
	out->tlvs_len = len;
	while ((more = kvr_tlv_next(&it, &t)) > 0) {
		const struct kvr_hint_row *row = &kvr_hint_rows[t.type & 0x3f];
		const struct value v = {row, &t, (uint8_t *)out + row->at,
					(uint8_t *)lists + row->store};

		if (!is_known(row, t.type, in)) {
			if ((t.type & KVR_HINT_CRITICAL) != 0)
				return KVR_E_HINT;
			continue;
		}
		if ((row->in >> in & 1) == 0 ||
		    (row->entries == 1 && (out->present & KVR_HAS(t.type)) != 0))
			return KVR_E_HINT;
		code = parse_value(&v, &least_block);
		if (code != KVR_OK)
			return code;
		out->present |= KVR_HAS(t.type);
	}
	return more == 0 ? KVR_OK : KVR_E_HINT;
}
