/* SPDX-License-Identifier: BSD-3-Clause */
/* route, prefill_done, output, finish, cancel, fail, session_ack: lines as events. */
#include "run.h"

#include <string.h>

static const struct ex_field only_id[] = {{"op", EX_STR, 0}, {"id", EX_STR, EX_REQUIRED}, {NULL}};

#define SAY(w, r, k, ...)                                                                          \
	ex_run_event(w, r, (struct kvr_rq_event){.kind = KVR_RQE_##k, __VA_ARGS__})

/* A worker has the leg, and has not ended it. */
static bool runs(const struct ex_req *r, uint32_t leg)
{
	return r->r.leg[leg].state == KVR_RQS_SENT || r->r.leg[leg].state == KVR_RQS_RUNNING;
}

bool ex_op_route(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct ex_req *r = ex_req_read(w, obj, p), *known;

	if (r == NULL)
		return false;
	known = ex_req_live(w, r->id);
	if (known != NULL) {
		const bool queued = known->queued;

		known->queued = false; /* it is the new one that is answered */
		SAY(w, known, REPEATED);
		known->queued = queued;
		ex_req_free(r);
	} else {
		ex_run_arrive(w, r);
	}
	return true;
}

/* The request named in a line. @return false: nothing to do, and *ok says whether that is right. */
static bool named(struct ex_world *w, const json_t *obj, const struct ex_field *fields,
		  struct ex_req **r, struct ex_problem *p, bool *ok)
{
	int known;

	*ok = ex_check(obj, fields, p);
	if (!*ok)
		return false;
	known = ex_req_find(w, obj, r, p);
	*ok = known >= 0;
	return known == 1;
}

static void prefill_ends(struct ex_world *w, struct ex_req *r)
{
	if (runs(r, KVR_LEG_PREFILL))
		SAY(w, r, FIN, .leg = KVR_LEG_PREFILL, .flags = KVR_RQEF_RESULT);
}

bool ex_op_prefill_done(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct ex_req *r;
	bool ok;

	if (!named(w, obj, only_id, &r, p, &ok))
		return ok;
	if (runs(r, KVR_LEG_MAIN))
		SAY(w, r, ITEM, .flags = KVR_RQEF_FIRST);
	prefill_ends(w, r);
	return true;
}

bool ex_op_output(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"op", EX_STR, 0},
						 {"id", EX_STR, EX_REQUIRED},
						 {"tokens", EX_U32, EX_REQUIRED},
						 {NULL}};
	struct ex_req *r;
	uint64_t n;
	bool ok;

	if (!named(w, obj, fields, &r, p, &ok))
		return ok;
	n = ex_u64_or(obj, "tokens", 0);
	if (r->generated + n > UINT32_MAX)
		return ex_bad(p, "more than 2^32-1 tokens");
	if (n > 0 && !runs(r, KVR_LEG_MAIN))
		prefill_ends(w, r);
	if (ex_req_live(w, ex_str_or(obj, "id", "")) != r || !runs(r, KVR_LEG_MAIN))
		return true; /* the decode leg was refused, or waits */
	if (n == 0)
		return true;
	SAY(w, r, ITEM, .flags = KVR_RQEF_FIRST);
	ex_run_poll(w); /* the end of prefill comes before the blocks of the item */
	r->generated += n;
	SAY(w, r, ITEM, .tokens = (uint32_t)r->generated);
	return true;
}

/* The request is over; here the worker of its prefill leg has nothing else to do, either. */
static bool end(struct ex_world *w, const json_t *obj, struct ex_problem *p, uint8_t kind,
		uint16_t flags)
{
	struct ex_req *r;
	bool ok;

	if (!named(w, obj, only_id, &r, p, &ok))
		return ok;
	r->failed = (flags & KVR_RQEF_ERROR) != 0;
	/* What no worker has yet can only be cancelled. */
	if (!runs(r, KVR_LEG_MAIN))
		kind = KVR_RQE_CANCEL;
	ex_run_event(w, r, (struct kvr_rq_event){.kind = kind, .flags = flags});
	if (runs(r, KVR_LEG_PREFILL))
		SAY(w, r, FIN, .leg = KVR_LEG_PREFILL,
		    .flags = r->failed ? KVR_RQEF_ERROR : KVR_RQEF_RESULT);
	return true;
}

bool ex_op_finish(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	return end(w, obj, p, KVR_RQE_FIN, 0);
}

bool ex_op_fail(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	return end(w, obj, p, KVR_RQE_FIN, KVR_RQEF_ERROR);
}

bool ex_op_cancel(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	return end(w, obj, p, KVR_RQE_CANCEL, 0);
}

bool ex_op_session_ack(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"op", EX_STR, 0},
						 {"id", EX_STR, EX_REQUIRED},
						 {"status", EX_STR, EX_NULL},
						 {NULL}};
	struct ex_req *r;
	bool ok;

	if (!named(w, obj, fields, &r, p, &ok))
		return ok;
	if (r->r.leg[KVR_LEG_MAIN].state != KVR_RQS_HELD)
		return ex_bad(p, "request '%s' opens no session", r->id);
	if (strcmp(ex_str_or(obj, "status", "ok"), "ok") == 0)
		SAY(w, r, OPENED);
	else
		SAY(w, r, NOT_OPENED, .code = 1);
	return true;
}
