/* SPDX-License-Identifier: BSD-3-Clause */
#include "hints_pvt.h"

#include <errno.h>
#include <string.h>

static int list_session(const struct gw_hints *h, struct kvr_client_hints *list)
{
	enum kvr_client_session action = KVR_CLIENT_SESSION_USE;

	if (strcmp(h->action, "open") == 0)
		action = KVR_CLIENT_SESSION_OPEN;
	else if (strcmp(h->action, "close") == 0)
		action = KVR_CLIENT_SESSION_CLOSE;
	else if (h->action[0] != '\0')
		return -EINVAL;
	return kvr_client_hint_session(list, h->session, action,
				       action == KVR_CLIENT_SESSION_OPEN ? h->timeout_s : 0);
}

static void list_constraints(const struct gw_hints *h, struct kvr_client_hints *list)
{
	if (h->given & (UINT64_C(1) << R_ALLOWED))
		kvr_client_hint_allowed_workers(list, h->allowed, h->n_allowed);
	for (uint32_t i = 0; i < h->n_required; i++)
		kvr_client_hint_required_taint(list, h->required[i]);
	for (uint32_t i = 0; i < h->n_preferred; i++)
		kvr_client_hint_preferred_taint(list, h->preferred[i], h->weight[i]);
	for (int i = 1; i < 8; i++)
		if (h->overrides & (1u << i))
			kvr_client_hint_override(list, (enum kvr_client_override)i,
						 h->override_value[i]);
}

bool gw_hints_pinned(const struct gw_hints *h)
{
	const uint64_t pins = UINT64_C(1) << R_BACKEND | UINT64_C(1) << R_WORKER |
			      UINT64_C(1) << R_PREFILL | UINT64_C(1) << R_DECODE;

	return (h->given & pins) != 0;
}

int gw_hints_list(const struct gw_hints *h, struct kvr_client_hints *list)
{
	const uint64_t given = h->given;
	int rc = 0;

#define SAID(row) ((given & (UINT64_C(1) << (row))) != 0)
	if (h->lora[0] != '\0')
		kvr_client_hint_lora(list, h->lora);
	if (h->ns[0] != '\0')
		kvr_client_hint_namespace(list, h->ns);
	if (SAID(R_BACKEND) || SAID(R_WORKER))
		kvr_client_hint_backend(list, h->backend);
	if (SAID(R_PREFILL))
		kvr_client_hint_prefill_worker(list, h->prefill_worker);
	if (SAID(R_DECODE))
		kvr_client_hint_decode_worker(list, h->decode_worker);
	if (SAID(R_RANK))
		kvr_client_hint_dp_rank(list, h->dp_rank);
	if (SAID(R_PREFILL_RANK))
		kvr_client_hint_prefill_dp_rank(list, h->prefill_dp_rank);
	list_constraints(h, list);
	if (SAID(R_JUMP) || SAID(R_LATENCY))
		kvr_client_hint_priority_jump(list, h->priority_jump);
	if (SAID(R_STRICT))
		kvr_client_hint_strict_priority(list, h->strict_priority);
	if (SAID(R_PRIORITY))
		kvr_client_hint_priority(list, h->priority);
	if (h->policy[0] != '\0')
		kvr_client_hint_policy_class(list, h->policy);
	if (SAID(R_SESSION))
		rc = list_session(h, list);
#undef SAID
	return rc != 0 ? rc : kvr_client_hints_error(list);
}
