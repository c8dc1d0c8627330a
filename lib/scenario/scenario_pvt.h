/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SCENARIO_PVT_H
#define KVR_SCENARIO_PVT_H

/** @file Shared by the files of the library: operations, and lookup of the objects that a line
 * names. */

#include "kvr_scenario.h"

/** An operation. It checks everything before it changes anything. @return false with the problem.
 */
typedef bool kvr_sc_op_fn(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p);

kvr_sc_op_fn kvr_sc_op_pool, kvr_sc_op_worker, kvr_sc_op_worker_gone, kvr_sc_op_drain;
kvr_sc_op_fn kvr_sc_op_resume, kvr_sc_op_load, kvr_sc_op_mute, kvr_sc_op_resend;
kvr_sc_op_fn kvr_sc_op_store, kvr_sc_op_remove, kvr_sc_op_clear, kvr_sc_op_scores, kvr_sc_op_hash;
kvr_sc_op_fn kvr_sc_op_route, kvr_sc_op_prefill_done, kvr_sc_op_output, kvr_sc_op_finish;
kvr_sc_op_fn kvr_sc_op_cancel, kvr_sc_op_fail, kvr_sc_op_session_ack;
kvr_sc_op_fn kvr_sc_op_session_release, kvr_sc_op_loads, kvr_sc_op_advance;

/* ---- language.c -------------------------------------------------------------------------- */

/** Check all members of a line, and remove `op`. @return the operation, or NULL with the problem
 * noted. */
kvr_sc_op_fn *kvr_sc_language_check(json_t *obj, struct kvr_sc_problem *p);

/* ---- world.c: return NULL, KVR_SCHED_NO_RANK or -1 with the problem noted ---------------- */

/** The pool that a line names, or the first one. */
struct kvr_sc_pool *kvr_sc_pool_of(struct kvr_sc_world *w, const json_t *obj,
				   struct kvr_sc_problem *p);

/** The worker that a line names. */
struct kvr_sc_worker *kvr_sc_worker_of(struct kvr_sc_world *w, const json_t *obj,
				       struct kvr_sc_problem *p);

/** Dense rank of (worker, dp_rank). */
uint32_t kvr_sc_rank_of(const struct kvr_sc_worker *k, const json_t *obj, struct kvr_sc_problem *p);

/** The session that a line or its session_control names. */
const char *kvr_sc_session_id(const json_t *obj, struct kvr_sc_problem *p);

/** Find the request of a line: 1 live, 0 ended, -1 unknown. */
int kvr_sc_req_find(struct kvr_sc_world *w, const json_t *obj, struct kvr_sc_req **r,
		    struct kvr_sc_problem *p);

/** The live request of that id, or NULL. */
struct kvr_sc_req *kvr_sc_req_live(const struct kvr_sc_world *w, const char *id);

/* ---- prompt.c ---------------------------------------------------------------------------- */

/** Read the prompt; exactly one of the two fields must be present. @p adapter: object with LoRA
 * adapter and namespace, or NULL. */
bool kvr_sc_prompt_read(struct kvr_sc_line *l, const json_t *adapter, uint32_t block_size,
			struct kvr_sc_prompt *out, struct kvr_sc_problem *p);

#endif
