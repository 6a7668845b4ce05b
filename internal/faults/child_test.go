package faults_test

const childStage = "HOLDFAST_FAULTS_CHILD_STAGE"

func child(string) {}
