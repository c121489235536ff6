package fleet

// Reason is a machine-readable cause of a state or an action, CamelCase. Each
// comes with a sentence, ReasonText, and mostly with a more exact message beside it.
type Reason string

// Why an instance exists or has a new generation.
const (
	ReasonBelowMinimum Reason = "BelowMinimum" // the group had fewer living instances than its minimum
	ReasonReplacement  Reason = "Replacement"  // it replaces one that crashed
	ReasonRequested    Reason = "Requested"    // somebody asked for it
	ReasonRestart      Reason = "Restart"      // somebody asked for a restart
)

// Why the enforcer acts on a group or a record, beside the reasons of instances.
const (
	ReasonCrashLoop Reason = "CrashLoop" // too many crashes in a short time: starts pause
	ReasonCalm      Reason = "Calm"      // no crash for a quiet time: pauses start anew
	ReasonRetention Reason = "Retention" // a finished record's time is over
)

// Why an instance is pending.
const (
	ReasonUnscheduled   Reason = "Unscheduled"   // the scheduler has not looked at it yet
	ReasonNoNodes       Reason = "NoNodes"       // no node has joined
	ReasonNoNodeFits    Reason = "NoNodeFits"    // every node is excluded by some filter
	ReasonPlanMissing   Reason = "PlanMissing"   // its plan is not in the store
	ReasonPinnedWaiting Reason = "PinnedWaiting" // its data lives on a node that cannot take it now
	ReasonDataLost      Reason = "DataLost"      // its data was on a node that was deleted
	ReasonQuotaSpent    Reason = "QuotaSpent"    // its group, or the groups a quota counts, may hold no more
	ReasonReserved      Reason = "Reserved"      // what is free is kept for others
	ReasonBadConstraint Reason = "BadConstraint" // its plan says something about nodes that cannot be read
)

// Why an instance is being built, starts or runs.
const (
	ReasonPlaced           Reason = "Placed"           // a node was chosen; its agent has not answered yet
	ReasonPreparing        Reason = "Preparing"        // the directory is being built
	ReasonProcessStarted   Reason = "ProcessStarted"   // the process runs; without a readiness check it is ready
	ReasonReady            Reason = "Ready"            // the readiness check passed
	ReasonAdopted          Reason = "Adopted"          // an agent that came back found it running
	ReasonRestartedInPlace Reason = "RestartedInPlace" // it crashed and its agent started it again
	ReasonPortReleasing    Reason = "PortReleasing"    // the kernel still keeps connections of whoever had its port before
)

// Why an instance stops or has stopped.
const (
	ReasonStopRequested  Reason = "StopRequested"  // somebody asked for it
	ReasonAboveMaximum   Reason = "AboveMaximum"   // the group had more living instances than its maximum
	ReasonScaledDown     Reason = "ScaledDown"     // the minimum was lowered
	ReasonGroupDeleted   Reason = "GroupDeleted"   // its group is being deleted
	ReasonExitedByItself Reason = "ExitedByItself" // it exited with code 0 and nobody had asked
	ReasonDeadlinePassed Reason = "DeadlinePassed" // a state lasted longer than its plan allows
	ReasonOrphan         Reason = "Orphan"         // it ran without a record
	ReasonAgentShutdown  Reason = "AgentShutdown"  // its agent was told to stop everything
	ReasonNodeReturned   Reason = "NodeReturned"   // its lost node came back and two had one's place
	ReasonNodeDeleted    Reason = "NodeDeleted"    // somebody deleted its lost node
	ReasonStoppedLocally Reason = "StoppedLocally" // somebody stopped it on its own node, past the control plane
	ReasonPreempted      Reason = "Preempted"      // one of higher priority got its room
	ReasonRebalanced     Reason = "Rebalanced"     // it was moved to even out the nodes
	ReasonLifetimeOver   Reason = "LifetimeOver"   // it ran as long as its group lets one run
)

// Why an instance crashed or failed.
const (
	ReasonExited          Reason = "Exited"          // it exited with a code other than 0
	ReasonKilledBySignal  Reason = "KilledBySignal"  // a signal nobody here sent ended it
	ReasonOutOfMemory     Reason = "OutOfMemory"     // the kernel killed it for memory
	ReasonExitUnknown     Reason = "ExitUnknown"     // it went while nobody could see how
	ReasonNodeRebooted    Reason = "NodeRebooted"    // its host started anew
	ReasonStartTimeout    Reason = "StartTimeout"    // it was not ready in time
	ReasonPortTaken       Reason = "PortTaken"       // a stranger holds its port
	ReasonTemplateMissing Reason = "TemplateMissing" // a layer's template does not exist
	ReasonTemplateFetch   Reason = "TemplateFetch"   // a layer could not be fetched or its hash was wrong
	ReasonArtifactFetch   Reason = "ArtifactFetch"   // the platform's artifact could not be fetched
	ReasonArtifactHash    Reason = "ArtifactHash"    // the platform's artifact is not what the catalog says
	ReasonVariableMissing Reason = "VariableMissing" // a required variable has no value
	ReasonStartValue      Reason = "StartValue"      // a value given at start cannot be used safely
	ReasonSecretMissing   Reason = "SecretMissing"   // the value of a variable of type SECRET cannot be had
	ReasonConfigPatch     Reason = "ConfigPatch"     // a file could not be merged or patched as declared
	ReasonPrepareFailed   Reason = "PrepareFailed"   // the directory could not be built
	ReasonDiskFull        Reason = "DiskFull"        // the node's disk is full
	ReasonStartFailed     Reason = "StartFailed"     // the process could not be started
	ReasonRuntimeMissing  Reason = "RuntimeMissing"  // the node does not offer the runtime
	ReasonNodeLost        Reason = "NodeLost"        // its node's session is gone
	ReasonTerminalGone    Reason = "TerminalGone"    // its terminal's session was closed, or the multiplexer died
	ReasonUnhealthy       Reason = "Unhealthy"       // it ran and served no more
	ReasonDiskLimit       Reason = "DiskLimit"       // its directory holds more than its group allows
	ReasonCommandMissing  Reason = "CommandMissing"  // the command does not exist
	ReasonNotExecutable   Reason = "NotExecutable"   // the command cannot be executed
	ReasonCheckImpossible Reason = "CheckImpossible" // a check of its health can never be passed
	ReasonImageMissing    Reason = "ImageMissing"    // the container's image does not exist
	ReasonImageFetch      Reason = "ImageFetch"      // the container's image could not be fetched from its registry
)

// Why an exclusive instance, see Plan.Exclusive, waits, has stopped or is refused.
const (
	ReasonNoSession       Reason = "NoSession"       // its node has no session yet
	ReasonSessionExpiring Reason = "SessionExpiring" // its node could not renew its session in time: another may be given it
	ReasonGuardFailed     Reason = "GuardFailed"     // no guard could be run for it
	ReasonDirectoryTaken  Reason = "DirectoryTaken"  // its directory belongs to another or a later run
)

// reasonText is the glossary behind Text; a test keeps it complete.
var reasonText = map[Reason]string{
	ReasonBelowMinimum:     "the group had fewer living instances than its minimum",
	ReasonReplacement:      "it replaces an instance that crashed",
	ReasonRequested:        "somebody asked for it",
	ReasonRestart:          "somebody asked for a restart",
	ReasonCrashLoop:        "it crashed too often in a short time",
	ReasonCalm:             "nothing crashed for a quiet time",
	ReasonRetention:        "the time records are kept for is over",
	ReasonUnscheduled:      "the scheduler has not looked at it yet",
	ReasonNoNodes:          "no node has joined",
	ReasonNoNodeFits:       "no node can take it now",
	ReasonPlanMissing:      "its plan is not in the store",
	ReasonPinnedWaiting:    "its data lives on a node that cannot take it now",
	ReasonDataLost:         "its data was on a node that was deleted",
	ReasonQuotaSpent:       "a quota allows no more",
	ReasonReserved:         "what is free is reserved for others",
	ReasonBadConstraint:    "what its plan says about nodes cannot be read",
	ReasonPlaced:           "a node was chosen and its agent has not answered yet",
	ReasonPreparing:        "its directory is being built",
	ReasonProcessStarted:   "the process runs",
	ReasonReady:            "the readiness check passed",
	ReasonAdopted:          "its agent came back and found it running",
	ReasonRestartedInPlace: "it crashed and its agent started it again",
	ReasonPortReleasing:    "the kernel still keeps connections of a program that had its port",
	ReasonStopRequested:    "somebody asked for the stop",
	ReasonAboveMaximum:     "the group had more living instances than its maximum",
	ReasonScaledDown:       "the group's minimum was lowered",
	ReasonGroupDeleted:     "its group is being deleted",
	ReasonExitedByItself:   "it exited with code 0 without being asked",
	ReasonDeadlinePassed:   "it stayed in one state longer than its plan allows",
	ReasonOrphan:           "it ran without a record",
	ReasonAgentShutdown:    "its agent was told to stop everything",
	ReasonStoppedLocally:   "somebody stopped it on its own node",
	ReasonPreempted:        "an instance of higher priority got its room",
	ReasonRebalanced:       "it was moved to even out the nodes",
	ReasonLifetimeOver:     "it ran as long as its group lets one run",
	ReasonUnhealthy:        "it ran and served no more",
	ReasonDiskLimit:        "its directory holds more than its group allows",
	ReasonCommandMissing:   "its command does not exist",
	ReasonNotExecutable:    "its command cannot be executed",
	ReasonCheckImpossible:  "a check of its health can never be passed",
	ReasonImageMissing:     "its container's image does not exist",
	ReasonImageFetch:       "its container's image could not be fetched from its registry",
	ReasonExited:           "it exited with an error code",
	ReasonTerminalGone:     "its terminal is gone: somebody closed the session, or the terminal multiplexer died",
	ReasonKilledBySignal:   "it was ended by a signal nobody here sent",
	ReasonOutOfMemory:      "the kernel killed it for memory",
	ReasonExitUnknown:      "it ended while nobody could see how",
	ReasonNodeRebooted:     "its host was restarted",
	ReasonStartTimeout:     "it was not ready in time",
	ReasonPortTaken:        "another program holds its port",
	ReasonTemplateMissing:  "one of its templates does not exist",
	ReasonTemplateFetch:    "one of its templates could not be fetched",
	ReasonArtifactFetch:    "its platform's artifact could not be fetched",
	ReasonArtifactHash:     "its platform's artifact does not have the hash that the catalog says",
	ReasonVariableMissing:  "a variable that one of its templates requires has no value",
	ReasonStartValue:       "a value that was given at its start cannot be used",
	ReasonSecretMissing:    "the value of one of its secrets cannot be had",
	ReasonConfigPatch:      "one of its configuration files could not be merged or patched",
	ReasonPrepareFailed:    "its directory could not be built",
	ReasonDiskFull:         "the node's disk is full",
	ReasonStartFailed:      "its process could not be started",
	ReasonRuntimeMissing:   "the node does not offer its runtime",
	ReasonNodeLost:         "its node is lost",
	ReasonNodeReturned:     "a lost node came back and two had the place of one",
	ReasonNodeDeleted:      "its node was lost and then deleted",
	ReasonNoSession:        "its node has no session yet, without which it must not start",
	ReasonSessionExpiring:  "its node could not renew its session in time",
	ReasonGuardFailed:      "no guard could be run for it",
	ReasonDirectoryTaken:   "its directory belongs to another run",
}

// Text is the reason as a sentence without capital and period; the reason itself when unknown.
func (r Reason) Text() string {
	if t, ok := reasonText[r]; ok {
		return t
	}
	return string(r)
}
