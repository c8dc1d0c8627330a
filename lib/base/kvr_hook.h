/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HOOK_H
#define KVR_HOOK_H

/**
 * @file
 * Hooks: functions of a program that shared libraries call instead of a library's function of the
 * same name. They work around faults of one DPDK release and are compiled for that release only.
 * Each program checks at its start that its hooks are in effect.
 */

#include <dlfcn.h>
#include <stdbool.h>

#include <rte_version.h>

/** 1 with DPDK 22.11. Before another release is added, review what each hook works around. */
#ifndef KVR_HOOK
#define KVR_HOOK                                                                                   \
	(RTE_VERSION >= RTE_VERSION_NUM(22, 11, 0, 0) &&                                           \
	 RTE_VERSION < RTE_VERSION_NUM(22, 12, 0, 0))
#endif

/** Return true if shared libraries resolve the symbol @p name to @p ours. Any thread. */
static inline bool kvr_hook_in_effect(const char *name, const void *ours)
{
	return dlsym(RTLD_DEFAULT, name) == ours;
}

#endif
