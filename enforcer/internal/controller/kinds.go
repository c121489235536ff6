package controller

import "github.com/orreryhq/orrery/libs/store/view"

// Kinds are the kinds of records that the enforcer reads from the view.
func Kinds() []view.Kind {
	return []view.Kind{
		view.KindGroup, view.KindCrashLoop, view.KindScaling, view.KindTenant, view.KindCrash, view.KindTemplateHead, view.KindCatalog, view.KindPlan, view.KindMaintenance, view.KindActiveOverlay,
		view.KindIntent, view.KindPlacement, view.KindOrder, view.KindStatus, view.KindPending, view.KindName, view.KindCredential, view.KindClaims, view.KindMove, view.KindCopy, view.KindEviction,
		view.KindDeployment, view.KindProgress, view.KindConfigActive,
		view.KindNode, view.KindNodeDesired, view.KindSession, view.KindAlloc, view.KindReport, view.KindReportPart, view.KindPlayers,
	}
}
