/* SPDX-License-Identifier: BSD-3-Clause */
/* The language of scenarios: the type of each field, and the fields of each operation. */
#include "scenario_pvt.h"

#include <string.h>

/* ---- the language ------------------------------------------------------------------------ */

enum kind { STR, U64, U32, POS, REAL, BOOL, U64S, U32S, STRS, ARR, MAP, OBJ };

static const char *const wants[] = {
	[STR] = "a string",
	[U64] = "an integer from 0 to 2^64-1",
	[U32] = "an integer from 0 to 2^32-1",
	[POS] = "a number not below 0",
	[REAL] = "a number",
	[BOOL] = "true or false",
	[U64S] = "an array of integers from 0 to 2^64-1",
	[U32S] = "an array of integers from 0 to 2^32-1",
	[STRS] = "an array of strings",
	[ARR] = "an array",
	[MAP] = "an object",
	[OBJ] = "an object",
};

/* The type of a field, which is the same in all operations. */
static const struct {
	enum kind kind;
	const char *names;
} fields[] = {
	{STR, "op id pool name model role phase tier lora_name cache_namespace "
	      "session_id action status host domain enforcement"},
	{U64, "worker seed total_kv_blocks max_num_batched_tokens kv_used_blocks from count "
	      "timeout"},
	{U32, "dp_rank dp_start dp_size block_size isl exec_isl max_tokens "
	      "expected_output_tokens port generated"},
	{POS, "ms"},
	{REAL, "weight overlap_score_weight router_temperature "
	       "shared_cache_multiplier overlap_score_credit prefill_load_scale"},
	{BOOL, "eagle assume_kv_reuse track_prefill_tokens probe book"},
	{U64S, "sequence_hashes"},
	{U32S, "tokens"},
	{STRS, "taints annotations"},
	{ARR, "mm shared_hits failed_at"},
	{MAP, "config topology"},
	{OBJ, "routing override session_control routing_constraints kv_transfer bootstrap"},
};

/* The members of an object. `!`: required; `=other`: same type as `other`. With `hints`, also the
 * hints of protocol.h that have a JSON member. */
static const struct {
	const char *name, *members;
	bool hints;
} objects[] = {
	{"routing", "expected_output_tokens routing_constraints session_control failed_at", true},
	{"override", "overlap_score_weight router_temperature assume_kv_reuse track_prefill_tokens "
		     "shared_cache_multiplier overlap_score_credit prefill_load_scale"},
	{"session_control", "session_id! action timeout"},
	{"routing_constraints", "", true},
	{"kv_transfer", "domain enforcement weight"},
	{"bootstrap", "host! port!"},
};

static const struct {
	const char *name;
	kvr_sc_op_fn *run;
	const char *members; /* besides `op` */
} ops[] = {
	{"pool", kvr_sc_op_pool, "name! model block_size! role seed config"},
	{"worker", kvr_sc_op_worker,
	 "worker! pool dp_start dp_size total_kv_blocks max_num_batched_tokens taints topology "
	 "kv_transfer bootstrap"},
	{"worker_gone", kvr_sc_op_worker_gone, "worker!"},
	{"drain", kvr_sc_op_drain, "worker!"},
	{"resume", kvr_sc_op_resume, "worker!"},
	{"mute", kvr_sc_op_mute, "worker!"},
	{"load", kvr_sc_op_load, "worker! dp_rank kv_used_blocks!"},
	{"store", kvr_sc_op_store,
	 "worker! dp_rank tier tokens sequence_hashes from lora_name cache_namespace mm"},
	{"remove", kvr_sc_op_remove,
	 "worker! dp_rank tier tokens sequence_hashes from count lora_name cache_namespace mm"},
	{"clear", kvr_sc_op_clear, "worker! dp_rank"},
	{"route", kvr_sc_op_route,
	 "id! pool tokens sequence_hashes isl exec_isl phase routing override annotations "
	 "max_tokens mm shared_hits probe book"},
	{"resend", kvr_sc_op_resend, "id!"},
	{"prefill_done", kvr_sc_op_prefill_done, "id!"},
	{"output", kvr_sc_op_output, "id! tokens=generated!"},
	{"finish", kvr_sc_op_finish, "id!"},
	{"cancel", kvr_sc_op_cancel, "id!"},
	{"fail", kvr_sc_op_fail, "id! status phase"},
	{"session_ack", kvr_sc_op_session_ack, "id! status"},
	{"session_release", kvr_sc_op_session_release, "session_id! pool"},
	{"advance", kvr_sc_op_advance, "ms!"},
	{"loads", kvr_sc_op_loads, "tokens sequence_hashes pool"},
	{"scores", kvr_sc_op_scores, "tokens sequence_hashes pool"},
	{"hash", kvr_sc_op_hash, "tokens! block_size lora_name cache_namespace mm eagle"},
};

/* ---- checking ---------------------------------------------------------------------------- */

static size_t word_len(const char *s)
{
	return strcspn(s, " =!");
}

/* Find the word of a list that is @p name, apart from its marks. NULL: none. */
static const char *find_word(const char *list, const char *name)
{
	const size_t len = word_len(name);

	for (const char *s = list; *s != '\0'; s += strcspn(s, " "), s += strspn(s, " "))
		if (word_len(s) == len && strncmp(s, name, len) == 0)
			return s;
	return NULL;
}

static const struct kvr_hint_row *find_hint(const char *name)
{
	for (uint32_t i = 0; i < KVR_HINT_ROWS; i++)
		if (kvr_hint_rows[i].format != 0 && name[0] != '\0' &&
		    strcmp(kvr_hint_rows[i].json, name) == 0)
			return &kvr_hint_rows[i];
	return NULL;
}

static enum kind hint_kind(const struct kvr_hint_row *row)
{
	static const enum kind kinds[] = {
		[KVR_FORMAT_U64] = U64,	  [KVR_FORMAT_U32] = U32,	[KVR_FORMAT_I32] = REAL,
		[KVR_FORMAT_F64] = REAL,  [KVR_FORMAT_TEXT] = STR,	[KVR_FORMAT_TEXTS] = STRS,
		[KVR_FORMAT_U64S] = U64S, [KVR_FORMAT_PREFERRED] = MAP,
	};

	return kinds[row->format];
}

static enum kind kind_of(const char *name)
{
	size_t i = 0;

	while (find_word(fields[i].names, name) == NULL)
		i++;
	return fields[i].kind;
}

static bool is_list(const json_t *v, enum kind kind)
{
	size_t i;
	json_t *e;

	if (!json_is_array(v))
		return false;
	json_array_foreach (v, i, e)
		if (kind == STRS ? !kvr_sc_is_text(e)
				 : !kvr_sc_is_u64(e, kind == U32S ? UINT32_MAX : UINT64_MAX))
			return false;
	return true;
}

static bool type_fits(const json_t *v, enum kind kind)
{
	switch (kind) {
	case STR:
		return kvr_sc_is_text(v);
	case U64:
		return kvr_sc_is_u64(v, UINT64_MAX);
	case U32:
		return kvr_sc_is_u64(v, UINT32_MAX);
	case POS:
		return kvr_sc_is_real(v) && kvr_sc_real(v) >= 0;
	case REAL:
		return kvr_sc_is_real(v);
	case BOOL:
		return json_is_boolean(v);
	case ARR:
		return json_is_array(v);
	case MAP:
	case OBJ:
		return json_is_object(v);
	default:
		return is_list(v, kind);
	}
}

static bool check_members(const json_t *obj, const char *members, bool hints,
			  struct kvr_sc_problem *p);

static bool check_member(const char *key, const json_t *v, const char *members, bool hints,
			 struct kvr_sc_problem *p)
{
	const struct kvr_hint_row *hint = hints ? find_hint(key) : NULL;
	const char *at = find_word(members, key);
	enum kind kind;

	if (at == NULL && hint == NULL)
		return kvr_sc_bad(p, "unknown field '%s'", key);
	if (hint != NULL)
		kind = hint_kind(hint);
	else
		kind = kind_of(at[word_len(at)] == '=' ? at + word_len(at) + 1 : at);
	if (json_is_null(v))
		return true;
	if (!type_fits(v, kind))
		return kvr_sc_bad(p, "'%s' must be %s", key, wants[kind]);
	for (size_t i = 0; kind == OBJ && i < RTE_DIM(objects); i++)
		if (strcmp(objects[i].name, key) == 0)
			return check_members(v, objects[i].members, objects[i].hints, p);
	return true;
}

static bool check_members(const json_t *obj, const char *members, bool hints,
			  struct kvr_sc_problem *p)
{
	const char *key;
	char name[64];
	json_t *v;

	json_object_foreach ((json_t *)obj, key, v)
		if (!check_member(key, v, members, hints, p))
			return false;
	for (const char *s = members; *s != '\0'; s += strcspn(s, " "), s += strspn(s, " ")) {
		snprintf(name, sizeof(name), "%.*s", (int)word_len(s), s);
		if (s[strcspn(s, " !")] == '!' && kvr_sc_get(obj, name) == NULL)
			return kvr_sc_bad(p, "missing field '%s'", name);
	}
	return true;
}

kvr_sc_op_fn *kvr_sc_language_check(json_t *obj, struct kvr_sc_problem *p)
{
	const char *op = kvr_sc_str_or(obj, "op", "");

	for (size_t i = 0; i < RTE_DIM(ops); i++)
		if (strcmp(ops[i].name, op) == 0) {
			json_object_del(obj, "op");
			return check_members(obj, ops[i].members, false, p) ? ops[i].run : NULL;
		}
	kvr_sc_bad(p, "unknown op");
	return NULL;
}
