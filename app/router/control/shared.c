/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared memory for other DPDK processes, and the clock of captured frames. */
#include "control/shared.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_pdump.h>

#include "kvr_hook.h"

static bool asked, serves;
struct shared_clock shared_clock;

int shared_clock_begin(void)
{
	if (shared_clock.hz != 0)
		return 0;
#if KVR_HOOK
	*(void **)&shared_clock.copy = dlsym(RTLD_NEXT, "rte_pcapng_copy");
	if (shared_clock.copy == NULL)
		return -ENOSYS;
#endif
	shared_clock.hz = rte_get_tsc_hz();
	shared_clock_look();
	return 0;
}

void shared_clock_set(uint64_t tsc, uint64_t ns)
{
	struct shared_clock *k = &shared_clock;

	atomic_store_explicit(&k->ahead,
			      ns - (uint64_t)((unsigned __int128)tsc * 1000000000 / k->hz),
			      memory_order_relaxed);
}

/* Use the pair of clock reads with the shortest time between them. */
void shared_clock_look(void)
{
	uint64_t least = UINT64_MAX, tsc = 0, ns = 0;

	if (shared_clock.hz == 0)
		return;
	for (int i = 0; i < 4; i++) {
		const uint64_t before = rte_rdtsc();
		struct timespec t;
		uint64_t took;

		clock_gettime(CLOCK_REALTIME, &t);
		took = rte_rdtsc() - before;
		if (took >= least)
			continue;
		least = took;
		tsc = before + took / 2;
		ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	}
	shared_clock_set(tsc, ns);
}

void shared_ask(void)
{
	asked = true;
}

bool shared_asked(void)
{
	return asked;
}

int shared_start(char *err, size_t errlen)
{
	int rc;

	if (!asked)
		return 0;
	rc = shared_clock_begin();
	if (rc < 0) {
		snprintf(err, errlen, "--multi-process: librte_pcapng is not available");
		return rc;
	}
	if (rte_pdump_init() != 0) {
		snprintf(err, errlen,
			 "--multi-process: cannot serve captures by other processes: %s",
			 rte_strerror(rte_errno));
		return rte_errno > 0 ? -rte_errno : -1;
	}
	serves = true;
	return 0;
}

void shared_ports(bool seen)
{
	static struct rte_eth_dev_owner owner[RTE_MAX_ETHPORTS];

	for (uint16_t i = 0; asked && i < RTE_MAX_ETHPORTS; i++) {
		if (!rte_eth_dev_is_valid_port(i))
			continue;
		if (!seen && owner[i].id != RTE_ETH_DEV_NO_OWNER)
			rte_eth_dev_owner_set(i, &owner[i]);
		else if (seen && rte_eth_dev_owner_get(i, &owner[i]) == 0 &&
			 owner[i].id != RTE_ETH_DEV_NO_OWNER)
			rte_eth_dev_owner_unset(i, owner[i].id);
	}
}

void shared_stop(void)
{
	if (serves)
		rte_pdump_uninit();
	serves = false;
}

void shared_clean(const char *file_prefix)
{
	FILE *mounts = asked ? setmntent("/proc/mounts", "r") : NULL;
	struct mntent *m;
	char pattern[512];
	glob_t g;

	while (mounts != NULL && (m = getmntent(mounts)) != NULL) {
		if (strcmp(m->mnt_type, "hugetlbfs") != 0)
			continue;
		snprintf(pattern, sizeof(pattern), "%s/%smap_*", m->mnt_dir, file_prefix);
		if (glob(pattern, 0, NULL, &g) != 0)
			continue;
		for (size_t i = 0; i < g.gl_pathc; i++)
			unlink(g.gl_pathv[i]);
		globfree(&g);
	}
	if (mounts != NULL)
		endmntent(mounts);
}
