package fleet

// Reason is the machine-readable cause of a state or an action, in CamelCase. Text explains it;
// usually a record has a more detailed message too.
type Reason string

// Why an instance exists or has a new generation.
const (
	ReasonBelowMinimum Reason = "BelowMinimum" // the group had fewer instances than its minimum
	ReasonFullness     Reason = "Fullness"     // so many slots of the group were occupied that it needed more instances
	ReasonBuffer       Reason = "Buffer"       // fewer slots were free than the group keeps free
	ReasonDegraded     Reason = "Degraded"     // all instances of the group had players and too few ticks per second
	ReasonPolicy       Reason = "Policy"       // a scaling policy of the group asked for this number of instances; the message names it
	ReasonWarmPool     Reason = "WarmPool"     // the group keeps prepared instances for later, and had too few
	ReasonReplacement  Reason = "Replacement"  // it replaces an instance that crashed or was lost; that instance's reason and crash record say why
	ReasonRequested    Reason = "Requested"    // a user requested it
	ReasonRestart      Reason = "Restart"      // a user requested a restart
	ReasonNodeReady    Reason = "NodeReady"    // the drain of its node was ended, and it had been stopped for that drain
	ReasonDeployment   Reason = "Deployment"   // a deployment replaces the instances of its group; the message names it
	ReasonWoken        Reason = "Woken"        // it was asleep and was woken; the message says by whom
)

// Why the enforcer acts on a group or a record.
const (
	ReasonCrashLoop         Reason = "CrashLoop"         // too many crashes in a short time, so the group is paused; fix the cause, then change the group or reset the pause
	ReasonMaintenance       Reason = "Maintenance"       // the group, or all groups, are in maintenance, so nothing starts; end it
	ReasonDependencyMissing Reason = "DependencyMissing" // no instance runs of a group in dependsOn; start that group
	ReasonAtMaximum         Reason = "AtMaximum"         // the load of the group needs more instances than maxInstances allows; raise it
	ReasonCooldown          Reason = "Cooldown"          // the load of the group needs more instances, but the last change is too recent; wait, or lower scaleCooldownSeconds
	ReasonCalm              Reason = "Calm"              // no crash for some time; the next pause is short again
	ReasonRetention         Reason = "Retention"         // a finished record is older than the retention time and is removed
)

// Why an instance is pending.
const (
	ReasonUnscheduled   Reason = "Unscheduled"   // the scheduler has not looked at it yet; if this lasts, check that a scheduler is running
	ReasonNoNodes       Reason = "NoNodes"       // no node has joined; start an agent on at least one host
	ReasonNoNodeFits    Reason = "NoNodeFits"    // every node is excluded; the message says why and what would make a node fit
	ReasonPlanMissing   Reason = "PlanMissing"   // its plan is not in the store; if this lasts, restart the instance, which stores a new plan
	ReasonPinnedWaiting Reason = "PinnedWaiting" // its data is on a node that cannot take it now; bring that node back or free resources on it
	ReasonDataLost      Reason = "DataLost"      // its data was on a node that was deleted; start it without its data, or delete it
	ReasonQuotaSpent    Reason = "QuotaSpent"    // the quota of its group, or a quota that counts its group, is used up; raise the quota or stop other instances
	ReasonReserved      Reason = "Reserved"      // the free capacity is reserved for other groups; lower their reservations or add capacity
	ReasonNodePolicy    Reason = "NodePolicy"    // the policy of the nodes refuses what its group asks for; the message names the setting of the agent and what to add
	ReasonBadConstraint Reason = "BadConstraint" // its plan has an invalid placement rule; correct the field named in the message
)

// Why an instance is being built, starts or runs.
const (
	ReasonPlaced           Reason = "Placed"           // a node was chosen; its agent has not responded yet
	ReasonPreparing        Reason = "Preparing"        // the agent is building its directory
	ReasonStartQueued      Reason = "StartQueued"      // it waits until fewer instances start on its node, as after a reboot; raise start-parallel of the agent to start more at once
	ReasonNoInstanceUser   Reason = "NoInstanceUser"   // no user and group id is free for it on its node, or its static group has none; the message says what to do
	ReasonProcessStarted   Reason = "ProcessStarted"   // the process runs; without a readiness check it is ready
	ReasonReady            Reason = "Ready"            // the readiness check passed
	ReasonAdopted          Reason = "Adopted"          // a restarted agent found it still running
	ReasonRestartedInPlace Reason = "RestartedInPlace" // it crashed and its agent restarted it
	ReasonPortReleasing    Reason = "PortReleasing"    // its port still has closing connections of an earlier program, or a server of another instance; the agent waits until it is free
)

// Why an instance stops or has stopped.
const (
	ReasonStopRequested  Reason = "StopRequested"  // a user requested the stop
	ReasonAboveMaximum   Reason = "AboveMaximum"   // the group had more instances than its maximum
	ReasonScaledDown     Reason = "ScaledDown"     // the minimum was lowered
	ReasonIdle           Reason = "Idle"           // it had no players for a while, and its group needed fewer instances
	ReasonGroupDeleted   Reason = "GroupDeleted"   // its group is being deleted
	ReasonExitedByItself Reason = "ExitedByItself" // it exited with code 0 without a stop request
	ReasonDeadlinePassed Reason = "DeadlinePassed" // it stayed in one state longer than its plan allows, so it was killed; check its log, or raise the time limit
	ReasonOrphan         Reason = "Orphan"         // it ran without a record and was stopped
	ReasonAgentShutdown  Reason = "AgentShutdown"  // its agent was stopped together with its instances
	ReasonNodeReturned   Reason = "NodeReturned"   // its lost node came back after it was replaced, and only one of the two is needed
	ReasonNodeDeleted    Reason = "NodeDeleted"    // a user deleted its lost node
	ReasonStoppedLocally Reason = "StoppedLocally" // a user stopped it on its own node, without the control plane
	ReasonPreempted      Reason = "Preempted"      // an instance of higher priority needed its resources
	ReasonRebalanced     Reason = "Rebalanced"     // it was moved to even out the load of the nodes
	ReasonNodeDrained    Reason = "NodeDrained"    // a user drains its node; a static instance starts again once that is ended
	ReasonLifetimeOver   Reason = "LifetimeOver"   // it reached its group's maximum lifetime
	ReasonMoved          Reason = "Moved"          // a user moves it with its data to another node, where it starts again
	ReasonAsleep         Reason = "Asleep"         // it had no players for a while, or a user put it to sleep; it keeps its place and is woken when it is needed
)

// Why an instance crashed or failed.
const (
	ReasonExited          Reason = "Exited"          // it exited with a code other than 0; check its log
	ReasonKilledBySignal  Reason = "KilledBySignal"  // a signal that Orrery did not send ended it; check its log and the host's journal
	ReasonOutOfMemory     Reason = "OutOfMemory"     // the kernel killed it because it ran out of memory; raise its memory or lower its heap
	ReasonExitUnknown     Reason = "ExitUnknown"     // it ended while its agent could not observe it; check its log
	ReasonNodeRebooted    Reason = "NodeRebooted"    // its host was rebooted
	ReasonStartTimeout    Reason = "StartTimeout"    // it was not ready in time; check its log, or raise startupTimeoutSeconds
	ReasonPortTaken       Reason = "PortTaken"       // another program uses its port; stop that program or change the port range
	ReasonTemplateMissing Reason = "TemplateMissing" // a template it uses does not exist; create the template or remove it from the group
	ReasonTemplateFetch   Reason = "TemplateFetch"   // a template could not be fetched or had a wrong hash; check that templatesvc is reachable
	ReasonArtifactFetch   Reason = "ArtifactFetch"   // the platform's artifact could not be fetched; check its URL in the catalog
	ReasonArtifactHash    Reason = "ArtifactHash"    // the platform's artifact does not match the hash in the catalog; check the artifact, then correct the catalog
	ReasonVariableMissing Reason = "VariableMissing" // a required variable has no value; set it in the group or at the start
	ReasonStartValue      Reason = "StartValue"      // a value given at its start cannot be used safely; the message names it
	ReasonSecretMissing   Reason = "SecretMissing"   // the value of a secret variable is not available; check the reference and the secret
	ReasonConfigPatch     Reason = "ConfigPatch"     // a file could not be merged or patched as declared; correct the patch or the file
	ReasonPrepareFailed   Reason = "PrepareFailed"   // its directory could not be built; the message says why
	ReasonDiskFull        Reason = "DiskFull"        // the node's disk is full; free space on it
	ReasonStartFailed     Reason = "StartFailed"     // the process could not be started; the message says why
	ReasonRuntimeMissing  Reason = "RuntimeMissing"  // the node does not offer its runtime; install the runtime there or choose another
	ReasonNodeLost        Reason = "NodeLost"        // its node's session is gone; check the host, its agent and its network
	ReasonTerminalGone    Reason = "TerminalGone"    // its terminal session was closed or the terminal multiplexer died
	ReasonUnhealthy       Reason = "Unhealthy"       // it failed its liveness check; check its log
	ReasonDiskLimit       Reason = "DiskLimit"       // its directory is larger than its group allows; delete files or raise limits.diskMb
	ReasonCommandMissing  Reason = "CommandMissing"  // its command does not exist; correct the command or install the program
	ReasonNotExecutable   Reason = "NotExecutable"   // its command is not executable; correct its permissions
	ReasonCheckImpossible Reason = "CheckImpossible" // its health check can never pass; correct the check
	ReasonImageMissing    Reason = "ImageMissing"    // its container image does not exist; correct the image's name
	ReasonImageFetch      Reason = "ImageFetch"      // its container image could not be pulled; check the registry and its credentials
)

// Why an exclusive instance (static, with onNodeLoss replace) waits, stopped or is refused.
const (
	ReasonNoSession       Reason = "NoSession"       // its node has no session yet, and it may only start with one; check the agent's connection to etcd
	ReasonSessionExpiring Reason = "SessionExpiring" // its node could not renew its session in time, so it was stopped before another node may start it; check the connection to etcd
	ReasonGuardFailed     Reason = "GuardFailed"     // the agent could not run the guard process for it; the message says why
	ReasonDirectoryTaken  Reason = "DirectoryTaken"  // its directory belongs to another or a later run; stop that run first
)

// reasonText maps every Reason to its Text.
var reasonText = map[Reason]string{
	ReasonBelowMinimum:      "the group had fewer instances than its minimum",
	ReasonFullness:          "the group's slots were nearly full",
	ReasonBuffer:            "the group had too few free slots",
	ReasonDegraded:          "all instances of the group were slow",
	ReasonPolicy:            "a scaling policy of the group asked for this number of instances",
	ReasonWarmPool:          "the group keeps prepared instances for later",
	ReasonReplacement:       "it replaces another instance of the group",
	ReasonRequested:         "a user requested it",
	ReasonRestart:           "a user requested a restart",
	ReasonDeployment:        "a deployment replaces the instances of its group",
	ReasonWoken:             "it was woken",
	ReasonAsleep:            "it sleeps until it is needed",
	ReasonNoInstanceUser:    "no user and group id is free for it on its node",
	ReasonCrashLoop:         "it crashed too often in a short time",
	ReasonMaintenance:       "the group is in maintenance",
	ReasonDependencyMissing: "a group that it depends on does not run",
	ReasonAtMaximum:         "the group has as many instances as it may have",
	ReasonCooldown:          "the number of instances has just changed",
	ReasonCalm:              "there were no crashes for some time",
	ReasonRetention:         "the retention time of the record is over",
	ReasonUnscheduled:       "the scheduler has not looked at it yet",
	ReasonNoNodes:           "no node has joined",
	ReasonNoNodeFits:        "no node can take it now",
	ReasonPlanMissing:       "its plan is not in the store",
	ReasonPinnedWaiting:     "its data is on a node that cannot take it now",
	ReasonDataLost:          "its data was on a node that was deleted",
	ReasonQuotaSpent:        "a quota is used up",
	ReasonReserved:          "the free capacity is reserved for other groups",
	ReasonNodePolicy:        "the policy of the node does not admit what its group asks for",
	ReasonBadConstraint:     "its plan has an invalid placement rule",
	ReasonPlaced:            "a node was chosen and its agent has not responded yet",
	ReasonPreparing:         "its directory is being built",
	ReasonStartQueued:       "it waits until fewer instances start on its node",
	ReasonProcessStarted:    "the process runs",
	ReasonReady:             "the readiness check passed",
	ReasonAdopted:           "its agent restarted and found it running",
	ReasonRestartedInPlace:  "it crashed and its agent restarted it",
	ReasonPortReleasing:     "its port is still used by an earlier program",
	ReasonStopRequested:     "a user requested the stop",
	ReasonAboveMaximum:      "the group had more instances than its maximum",
	ReasonScaledDown:        "the group's minimum was lowered",
	ReasonIdle:              "it had no players, and its group needed fewer instances",
	ReasonGroupDeleted:      "its group is being deleted",
	ReasonExitedByItself:    "it exited with code 0 without a stop request",
	ReasonDeadlinePassed:    "it stayed in one state longer than its plan allows",
	ReasonOrphan:            "it ran without a record",
	ReasonAgentShutdown:     "its agent was stopped together with its instances",
	ReasonStoppedLocally:    "a user stopped it on its node",
	ReasonPreempted:         "an instance of higher priority needed its resources",
	ReasonRebalanced:        "it was moved to even out the load of the nodes",
	ReasonNodeDrained:       "its node is being drained",
	ReasonNodeReady:         "the drain of its node was ended",
	ReasonLifetimeOver:      "it reached its group's maximum lifetime",
	ReasonMoved:             "it is moved with its data to another node",
	ReasonUnhealthy:         "it failed its liveness check",
	ReasonDiskLimit:         "its directory is larger than its group allows",
	ReasonCommandMissing:    "its command does not exist",
	ReasonNotExecutable:     "its command is not executable",
	ReasonCheckImpossible:   "its health check can never pass",
	ReasonImageMissing:      "its container image does not exist",
	ReasonImageFetch:        "its container image could not be pulled from its registry",
	ReasonExited:            "it exited with an error code",
	ReasonTerminalGone:      "its terminal is gone: its session was closed or the terminal multiplexer died",
	ReasonKilledBySignal:    "it was ended by a signal that Orrery did not send",
	ReasonOutOfMemory:       "the kernel killed it because it ran out of memory",
	ReasonExitUnknown:       "it ended and its agent could not observe how",
	ReasonNodeRebooted:      "its host was rebooted",
	ReasonStartTimeout:      "it was not ready in time",
	ReasonPortTaken:         "another program uses its port",
	ReasonTemplateMissing:   "one of its templates does not exist",
	ReasonTemplateFetch:     "one of its templates could not be fetched",
	ReasonArtifactFetch:     "its platform's artifact could not be fetched",
	ReasonArtifactHash:      "its platform's artifact does not match the hash in the catalog",
	ReasonVariableMissing:   "a variable required by one of its templates has no value",
	ReasonStartValue:        "a value given at its start cannot be used",
	ReasonSecretMissing:     "the value of one of its secrets is not available",
	ReasonConfigPatch:       "one of its configuration files could not be merged or patched",
	ReasonPrepareFailed:     "its directory could not be built",
	ReasonDiskFull:          "the node's disk is full",
	ReasonStartFailed:       "its process could not be started",
	ReasonRuntimeMissing:    "the node does not offer its runtime",
	ReasonNodeLost:          "its node is lost",
	ReasonNodeReturned:      "its lost node came back after it was replaced",
	ReasonNodeDeleted:       "its node was lost and then deleted",
	ReasonNoSession:         "its node has no session yet, and it may not start without one",
	ReasonSessionExpiring:   "its node could not renew its session in time",
	ReasonGuardFailed:       "the agent could not run a guard for it",
	ReasonDirectoryTaken:    "its directory belongs to another run",
}

// Text explains the reason in a sentence without capital and period. For an unknown reason it
// returns the reason itself.
func (r Reason) Text() string {
	if t, ok := reasonText[r]; ok {
		return t
	}
	return string(r)
}
