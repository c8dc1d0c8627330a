/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_legs.h"

void kvr_legs_init(struct kvr_legs *l, uint8_t reroutes)
{
	*l = (struct kvr_legs){.reroutes = reroutes};
}

static uint32_t prefill_done(struct kvr_legs *l)
{
	if (l->prefill != KVR_LEG_LIVE)
		return 0;
	l->prefill = KVR_LEG_ENDED;
	/* Also when the client is gone: the decode worker must release what was transferred. */
	return KVR_LEGS_PREFILL_END | (l->decode == KVR_LEG_NONE ? KVR_LEGS_ROUTE_DECODE : 0);
}

/* Both legs anew, or never. */
static uint32_t again(struct kvr_legs *l)
{
	if (!l->cancelled && l->reroutes > 0) {
		l->reroutes--;
		l->prefill = l->decode = KVR_LEG_NONE;
		return KVR_LEGS_START_OVER;
	}
	l->decode = KVR_LEG_ENDED;
	return l->cancelled ? 0 : KVR_LEGS_REJECT;
}

static uint32_t prefill_failed(struct kvr_legs *l)
{
	uint32_t todo = KVR_LEGS_PREFILL_END;

	if (l->prefill == KVR_LEG_ENDED || kvr_legs_over(l))
		return 0;
	l->prefill = KVR_LEG_ENDED;
	if (l->decode == KVR_LEG_ENDED || l->output)
		return todo; /* nobody depends on it */
	if (l->decode == KVR_LEG_WAITING)
		todo |= KVR_LEGS_DECODE_LEAVE;
	else if (l->decode == KVR_LEG_LIVE)
		todo |= KVR_LEGS_DECODE_ABORT;
	return todo | again(l);
}

static uint32_t decode_live(struct kvr_legs *l)
{
	l->decode = KVR_LEG_LIVE;
	if (!l->cancelled)
		return 0;
	l->decode = KVR_LEG_ENDED;
	return KVR_LEGS_DECODE_ABORT;
}

static uint32_t decode_output(struct kvr_legs *l)
{
	if (l->decode != KVR_LEG_LIVE)
		return 0;
	l->output = true;
	if (l->prefill != KVR_LEG_LIVE)
		return 0;
	l->prefill = KVR_LEG_ENDED;
	return KVR_LEGS_PREFILL_END;
}

static uint32_t decode_failed(struct kvr_legs *l)
{
	uint32_t todo = l->decode == KVR_LEG_WAITING ? KVR_LEGS_DECODE_LEAVE
			: l->decode == KVR_LEG_LIVE  ? KVR_LEGS_DECODE_END
						     : 0;

	if (l->decode == KVR_LEG_ENDED)
		return 0;
	l->decode = KVR_LEG_ENDED;
	return l->cancelled ? todo : todo | KVR_LEGS_REJECT;
}

static uint32_t cancel(struct kvr_legs *l)
{
	if (l->cancelled || l->decode == KVR_LEG_ENDED)
		return 0;
	l->cancelled = true;
	if (l->decode == KVR_LEG_LIVE) {
		l->decode = KVR_LEG_ENDED;
		return KVR_LEGS_DECODE_ABORT;
	}
	if (l->prefill == KVR_LEG_NONE && l->decode == KVR_LEG_WAITING) {
		l->decode = KVR_LEG_ENDED; /* without a prefill leg nothing is under way */
		return KVR_LEGS_DECODE_LEAVE;
	}
	if (l->prefill != KVR_LEG_WAITING)
		return 0;
	l->prefill = l->decode = KVR_LEG_ENDED;
	return KVR_LEGS_PREFILL_LEAVE;
}

uint32_t kvr_legs_step(struct kvr_legs *l, enum kvr_legs_event event)
{
	switch (event) {
	case KVR_LEGS_PREFILL_WAITS:
		l->prefill = KVR_LEG_WAITING;
		return 0;
	case KVR_LEGS_PREFILL_LIVE:
		l->prefill = KVR_LEG_LIVE;
		return l->bootstrap ? KVR_LEGS_ROUTE_DECODE : 0;
	case KVR_LEGS_PREFILL_DONE:
		return prefill_done(l);
	case KVR_LEGS_PREFILL_FAILED:
		return prefill_failed(l);
	case KVR_LEGS_DECODE_WAITS:
		l->decode = KVR_LEG_WAITING;
		return 0;
	case KVR_LEGS_DECODE_LIVE:
		return decode_live(l);
	case KVR_LEGS_DECODE_OUTPUT:
		return decode_output(l);
	case KVR_LEGS_DECODE_DONE:
		if (l->decode != KVR_LEG_LIVE)
			return 0;
		l->decode = KVR_LEG_ENDED;
		return KVR_LEGS_DECODE_END;
	case KVR_LEGS_DECODE_REFUSED:
		if (l->decode == KVR_LEG_ENDED)
			return 0;
		l->decode = KVR_LEG_ENDED;
		return l->cancelled ? 0 : KVR_LEGS_REJECT;
	case KVR_LEGS_DECODE_FAILED:
		return decode_failed(l);
	case KVR_LEGS_RESULT_LOST:
		return KVR_LEGS_DECODE_END | again(l);
	case KVR_LEGS_CANCEL:
		return cancel(l);
	case KVR_LEGS_EVENTS:
		break;
	}
	return 0;
}
