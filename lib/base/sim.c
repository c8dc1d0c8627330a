/* SPDX-License-Identifier: BSD-3-Clause */
/* Table of simulation sites with their counters; empty in builds without KVR_SIM. */
#include "kvr_sim.h"

#include <stddef.h>

static bool (*hook)(void *arg, enum kvr_sim_site site);
static void *hook_arg;

void kvr_sim_hook(bool (*fn)(void *arg, enum kvr_sim_site site), void *arg)
{
	hook = fn;
	hook_arg = arg;
}

#ifdef KVR_SIM

static struct {
	const char *name, *text;
	bool fails;
	uint64_t reached, failed;
} sites[] = {
#define ROW(name, fails, text) {#name, text, fails, 0, 0},
	KVR_SIM_SITES(ROW)
#undef ROW
};

bool kvr_sim_fault(enum kvr_sim_site site)
{
	const bool fails = hook != NULL && hook(hook_arg, site);

	sites[site].reached++;
	sites[site].failed += fails;
	return fails;
}

void kvr_sim_sometimes(enum kvr_sim_site site)
{
	sites[site].reached++;
}

const char *kvr_sim_site_get(uint32_t site, const char **text, bool *fails, uint64_t *reached,
			     uint64_t *failed)
{
	if (site >= KVR_SIM_N)
		return NULL;
	*text = sites[site].text;
	*fails = sites[site].fails;
	*reached = sites[site].reached;
	*failed = sites[site].failed;
	return sites[site].name;
}

#else

const char *kvr_sim_site_get(uint32_t site, const char **text, bool *fails, uint64_t *reached,
			     uint64_t *failed)
{
	(void)site;
	(void)text;
	(void)fails;
	(void)reached;
	(void)failed;
	return NULL;
}

#endif
